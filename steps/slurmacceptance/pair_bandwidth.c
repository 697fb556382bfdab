/* Bandwidth between MPI ranks, one rank a node.
 *
 * Usage: pair_bandwidth MEBIBYTES SECONDS. Two ranks: one stream in each direction, one after the other. More ranks: every rank sends
 * to the rank K places after it while it receives from the one K places before it, for each K, so that every pair is used in both
 * directions; the slowest exchange counts. Prints tables as OSU's programs do: a line that begins with '#', then size in bytes and
 * MB/s. Data is checked at the receiver; a wrong byte ends the program with 3, two ranks on one host end it with 4.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double stream(int from, int to, int rank, char *buffer, int bytes, double seconds, int *wrong) {
    /* the receiver answers every message of a window, so that the sender's clock covers the whole transfer */
    double elapsed = 0.0;
    long sent = 0;
    int go = 1;
    while (go) {
        double start = MPI_Wtime();
        if (rank == from) {
            MPI_Send(buffer, bytes, MPI_CHAR, to, 0, MPI_COMM_WORLD);
            MPI_Recv(&go, 1, MPI_INT, to, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            elapsed += MPI_Wtime() - start;
            sent++;
            go = elapsed < seconds || sent < 3;
            MPI_Send(&go, 1, MPI_INT, to, 2, MPI_COMM_WORLD);
        } else {
            MPI_Recv(buffer, bytes, MPI_CHAR, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (buffer[0] != (char)(from + 1) || buffer[bytes - 1] != (char)(from + 1))
                *wrong = 1;
            MPI_Send(&go, 1, MPI_INT, from, 1, MPI_COMM_WORLD);
            MPI_Recv(&go, 1, MPI_INT, from, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    }
    return elapsed > 0.0 ? (double)bytes * sent / elapsed / 1e6 : 0.0;
}

static double shifts(int rank, int size, char *out, char *in, int bytes, int *wrong) {
    double slowest = 1e300;
    for (int shift = 1; shift < size; shift++) {
        int to = (rank + shift) % size, from = (rank + size - shift) % size, count = 4;
        double start = 0.0;
        MPI_Barrier(MPI_COMM_WORLD);
        for (int number = 0; number < count; number++) {
            if (number == 1) /* the first exchange connects */
                start = MPI_Wtime();
            memset(in, 0, bytes);
            MPI_Sendrecv(out, bytes, MPI_CHAR, to, 0, in, bytes, MPI_CHAR, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (in[0] != (char)(from + 1) || in[bytes - 1] != (char)(from + 1))
                *wrong = 1;
        }
        double figure = (double)bytes * (count - 1) / (MPI_Wtime() - start) / 1e6;
        if (figure < slowest)
            slowest = figure;
    }
    return slowest;
}

static int hosts_differ(int rank, int size) {
    char name[MPI_MAX_PROCESSOR_NAME];
    int length, same = 0, any = 0;
    memset(name, 0, sizeof name);
    MPI_Get_processor_name(name, &length);
    char *names = malloc((size_t)size * sizeof name);
    MPI_Allgather(name, sizeof name, MPI_CHAR, names, sizeof name, MPI_CHAR, MPI_COMM_WORLD);
    for (int other = 0; other < size; other++)
        if (other != rank && strcmp(names + (size_t)other * sizeof name, name) == 0)
            same = 1;
    free(names);
    MPI_Allreduce(&same, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return !any;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, size, wrong = 0, any = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int bytes = (argc > 1 ? atoi(argv[1]) : 1) << 20;
    double seconds = argc > 2 ? atof(argv[2]) : 1.0, figures[2], all[2];
    if (size < 2 || bytes <= 0) {
        if (rank == 0)
            fprintf(stderr, "pair_bandwidth: needs two ranks on two nodes and a size above 0\n");
        MPI_Finalize();
        return 2;
    }
    if (!hosts_differ(rank, size)) {
        if (rank == 0)
            fprintf(stderr, "pair_bandwidth: two ranks run on one host\n");
        MPI_Finalize();
        return 4;
    }
    char *buffer = malloc(bytes), *in = malloc(bytes);
    memset(buffer, rank + 1, bytes);
    if (size == 2) {
        for (int from = 0; from < 2; from++) {
            memset(buffer, rank == from ? from + 1 : 0, bytes);
            stream(from, 1 - from, rank, buffer, bytes, seconds / 10, &wrong); /* connects and warms up */
            double figure = stream(from, 1 - from, rank, buffer, bytes, seconds, &wrong);
            figures[from] = rank == from ? figure : 1e300;
        }
    } else {
        figures[0] = figures[1] = shifts(rank, size, buffer, in, bytes, &wrong);
    }
    MPI_Allreduce(figures, all, 2, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(&wrong, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (rank == 0) {
        for (int from = 0; from < (size == 2 ? 2 : 1); from++)
            printf("# %d ranks, %s, Size Bandwidth (MB/s)\n%d %.3f\n", size, from ? "backward" : "forward", bytes, all[from]);
        if (any)
            fprintf(stderr, "pair_bandwidth: wrong data received\n");
    }
    free(buffer);
    free(in);
    MPI_Finalize();
    return any ? 3 : 0;
}
