/* Bandwidth between MPI ranks, one rank a node.
 *
 * Usage: pair_bandwidth MEBIBYTES SECONDS. Two ranks: one stream in each direction, one after the other. More ranks: every rank sends
 * to the rank K places after it while it receives from the one K places before it, for each K, so that every pair is used in both
 * directions; the slowest exchange counts. Prints tables as OSU's programs do: a line that begins with '#', then size in bytes and
 * MB/s. Every message has a pattern of its own. The receiver compares all bytes of messages outside the measured time, into a buffer
 * that it has cleared, and in the measured time one byte of each page and the last. Wrong data ends the program with 3, two ranks on
 * one host end it with 4.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096 };

static unsigned char stamp_of(int from, long number, int at) { return (unsigned char)(from + 1 + number * 13 + (at / PAGE) * 5); }

static unsigned char body_of(int from, long number, int at) { return (unsigned char)(from + number * 7 + at * 31 + (at >> 8)); }

static void stamp(unsigned char *buffer, int bytes, int from, long number) {
    for (int at = 0; at < bytes; at += PAGE)
        buffer[at] = stamp_of(from, number, at);
    buffer[bytes - 1] = stamp_of(from, number, bytes - 1);
}

static int stamps_differ(const unsigned char *buffer, int bytes, int from, long number) {
    int differ = buffer[bytes - 1] != stamp_of(from, number, bytes - 1);
    for (int at = 0; at < bytes; at += PAGE)
        differ |= buffer[at] != stamp_of(from, number, at);
    return differ;
}

static void fill(unsigned char *buffer, int bytes, int from, long number) {
    for (int at = 0; at < bytes; at++)
        buffer[at] = body_of(from, number, at);
    stamp(buffer, bytes, from, number);
}

static int all_differ(const unsigned char *buffer, int bytes, int from, long number) {
    int differ = stamps_differ(buffer, bytes, from, number);
    for (int at = 0; at < bytes - 1; at++)
        differ |= at % PAGE && buffer[at] != body_of(from, number, at);
    return differ;
}

/* With `whole` every byte of a message is written and compared: many times as long as the message takes, so it is done for few. */
static double stream(int from, int to, int rank, unsigned char *buffer, int bytes, double seconds, int whole, int *wrong) {
    /* the receiver answers every message of a window, so that the sender's clock covers the whole transfer */
    double elapsed = 0.0;
    long sent = 0;
    int go = 1;
    while (go) {
        if (rank == from) {
            if (whole)
                fill(buffer, bytes, from, sent);
            else
                stamp(buffer, bytes, from, sent);
            double start = MPI_Wtime();
            MPI_Send(buffer, bytes, MPI_CHAR, to, 0, MPI_COMM_WORLD);
            MPI_Recv(&go, 1, MPI_INT, to, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            elapsed += MPI_Wtime() - start;
            MPI_Recv(&go, 1, MPI_INT, to, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* the receiver has compared */
            go = elapsed < seconds || sent < 2;
            MPI_Send(&go, 1, MPI_INT, to, 2, MPI_COMM_WORLD);
        } else {
            if (whole)
                memset(buffer, 0, bytes);
            MPI_Recv(buffer, bytes, MPI_CHAR, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(&go, 1, MPI_INT, from, 1, MPI_COMM_WORLD);
            *wrong |= whole ? all_differ(buffer, bytes, from, sent) : stamps_differ(buffer, bytes, from, sent);
            MPI_Send(&go, 1, MPI_INT, from, 3, MPI_COMM_WORLD);
            MPI_Recv(&go, 1, MPI_INT, from, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        sent++;
    }
    return elapsed > 0.0 ? (double)bytes * sent / elapsed / 1e6 : 0.0;
}

static double shifts(int rank, int size, unsigned char *out, unsigned char *in, int bytes, int *wrong) {
    double slowest = 1e300;
    for (int shift = 1; shift < size; shift++) {
        int to = (rank + shift) % size, from = (rank + size - shift) % size, count = 4;
        double start = 0.0;
        fill(out, bytes, rank, 0);
        memset(in, 0, bytes);
        MPI_Barrier(MPI_COMM_WORLD);
        for (int number = 0; number < count; number++) {
            if (number)
                stamp(out, bytes, rank, number);
            MPI_Sendrecv(out, bytes, MPI_CHAR, to, 0, in, bytes, MPI_CHAR, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            *wrong |= number ? stamps_differ(in, bytes, from, number) : all_differ(in, bytes, from, 0);
            if (number == 0) { /* the first exchange connects, and is compared whole */
                MPI_Barrier(MPI_COMM_WORLD);
                start = MPI_Wtime();
            }
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
    unsigned char *buffer = malloc(bytes), *in = malloc(bytes);
    if (!buffer || !in) {
        fprintf(stderr, "pair_bandwidth: no memory for two messages\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    if (size == 2) {
        for (int from = 0; from < 2; from++) {
            stream(from, 1 - from, rank, buffer, bytes, 0.0, 1, &wrong); /* connects */
            stream(from, 1 - from, rank, buffer, bytes, seconds / 10, 0, &wrong);
            double figure = stream(from, 1 - from, rank, buffer, bytes, seconds, 0, &wrong);
            stream(from, 1 - from, rank, buffer, bytes, 0.0, 1, &wrong);
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
