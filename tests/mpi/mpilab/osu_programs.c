/* MPI tests with the options and the tables of the OSU micro-benchmarks; one program, which does the test that it is called after.
 *
 * Usage: osu_latency | osu_bw | osu_bibw | osu_allreduce | osu_alltoall [-m MIN:MAX] [-i ITERATIONS] [-x WARMUPS]
 *
 * Unlike OSU's own, ranks sleep between polls, so that eight of them share two cores: figures have a resolution of 0.1 ms. Tests
 * of bandwidth and of many ranks end early after SECONDS; there is one message under way from rank to rank. Data is checked at each
 * receiver: a wrong byte shows in the last column and ends the program with 3. Two ranks on one host end it with 4.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SECONDS 0.4
#define MOST_RANKS 64
#define LARGEST (1 << 22)

static int rank, size, iterations = 8, warmups = 1, smallest = 1, largest = LARGEST, wrong;
static unsigned char *out, *in;

static void complete(int count, MPI_Request *requests) {
    const struct timespec nap = {0, 50000};
    int done = 0;
    while (MPI_Testall(count, requests, &done, MPI_STATUSES_IGNORE), !done)
        nanosleep(&nap, NULL);
}

static unsigned char byte(int from, int index, int step) { return (unsigned char)(from * 31 + index * 7 + step); }

static void fill(int bytes, int step) {
    for (int index = 0; index < bytes; index++)
        out[index] = byte(rank, index, step);
}

static void check(int from, int bytes, int step) {
    for (int index = 0; index < bytes; index++)
        wrong |= in[index] != byte(from, index, step);
}

static void exchange(int to, int bytes_out, int from, int bytes_in, int step) {
    MPI_Request both[2];
    fill(bytes_out, step);
    memset(in, 0xff, bytes_in);
    MPI_Irecv(in, bytes_in, MPI_BYTE, from, step, MPI_COMM_WORLD, &both[0]);
    MPI_Isend(out, bytes_out, MPI_BYTE, to, step, MPI_COMM_WORLD, &both[1]);
    complete(2, both);
    check(from, bytes_in, step);
}

static void sendonly(int to, int bytes, int step) {
    MPI_Request request;
    fill(bytes, step);
    MPI_Isend(out, bytes, MPI_BYTE, to, step, MPI_COMM_WORLD, &request);
    complete(1, &request);
}

static void receive(int from, int bytes, int step) {
    MPI_Request request;
    memset(in, 0xff, bytes);
    MPI_Irecv(in, bytes, MPI_BYTE, from, step, MPI_COMM_WORLD, &request);
    complete(1, &request);
    check(from, bytes, step);
}

/* Return half the time of a round trip in microseconds. */
static double latency(int bytes) {
    double start = 0.0;
    for (int step = -warmups; step < iterations; step++) {
        if (step == 0)
            start = MPI_Wtime();
        if (rank == 0)
            sendonly(1, bytes, step + warmups);
        receive(1 - rank, bytes, step + warmups);
        if (rank == 1)
            sendonly(0, bytes, step + warmups);
    }
    return (MPI_Wtime() - start) / iterations / 2 * 1e6;
}

/* Return MB/s: rank 0 sends `bytes` in each step and gets `back`. It tells after each step if another one follows. */
static double bandwidth(int bytes, int back, int counted) {
    double start = 0.0;
    int steps = 0, more = 1;
    for (int step = -warmups; more; step++) {
        if (step == 0)
            start = MPI_Wtime();
        exchange(1 - rank, rank ? back : bytes, 1 - rank, rank ? bytes : back, step + warmups);
        steps += step >= 0;
        more = steps == 0 || (steps < iterations && MPI_Wtime() - start < SECONDS);
        MPI_Request request;
        if (rank == 0)
            MPI_Isend(&more, 1, MPI_INT, 1, 1 << 14, MPI_COMM_WORLD, &request);
        else
            MPI_Irecv(&more, 1, MPI_INT, 0, 1 << 14, MPI_COMM_WORLD, &request);
        complete(1, &request);
    }
    return (double)counted * steps / (MPI_Wtime() - start) / 1e6;
}

static double bw(int bytes) { return bandwidth(bytes, 1, bytes); }

static double bibw(int bytes) { return bandwidth(bytes, bytes, 2 * bytes); }

/* Return 1 for another step. All ranks learn it at once, so that a step ends when the slowest of them has all its data. */
static int go_on(int steps, double start) {
    double mine = MPI_Wtime() - start, longest;
    MPI_Request request;
    MPI_Iallreduce(&mine, &longest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD, &request);
    complete(1, &request);
    return steps < iterations && longest < SECONDS;
}

static void sum_up(int bytes) {
    int count = bytes / (int)sizeof(int) ? bytes / (int)sizeof(int) : 1, *mine = (int *)out, *sum = (int *)in;
    MPI_Request request;
    for (int index = 0; index < count; index++)
        mine[index] = rank + index;
    MPI_Iallreduce(mine, sum, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    complete(1, &request);
    for (int index = 0; index < count; index++)
        wrong |= sum[index] != size * (size - 1) / 2 + size * index;
}

/* Each rank sends to each other one, to the one K places after it in step K. */
static void send_to_all(int bytes) {
    for (int shift = 1; shift < size; shift++)
        exchange((rank + shift) % size, bytes, (rank + size - shift) % size, bytes, shift);
}

/* Return the microseconds that one collective takes until all ranks have all data. */
static double collective(void (*step)(int), int bytes) {
    int steps = 0;
    for (int number = 0; number < warmups; number++)
        step(1); /* connects */
    go_on(0, 0.0);
    double start = MPI_Wtime();
    do
        step(bytes);
    while (go_on(++steps, start));
    return (MPI_Wtime() - start) / steps * 1e6;
}

static double allreduce(int bytes) { return collective(sum_up, bytes); }

static double alltoall(int bytes) { return collective(send_to_all, bytes); }

static const struct {
    const char *program, *title, *column;
    double (*run)(int);
    int pairs;
} TESTS[] = {
    {"osu_latency", "Latency", "Latency (us)", latency, 1},
    {"osu_bw", "Bandwidth", "Bandwidth (MB/s)", bw, 1},
    {"osu_bibw", "Bi-Directional Bandwidth", "Bandwidth (MB/s)", bibw, 1},
    {"osu_allreduce", "Allreduce Latency", "Avg Latency(us)", allreduce, 0},
    {"osu_alltoall", "All-to-All Personalized Exchange Latency", "Avg Latency(us)", alltoall, 0},
};

static int hosts_differ(void) {
    char name[MPI_MAX_PROCESSOR_NAME] = {0}, *names = malloc((size_t)size * sizeof name);
    int length, same = 0;
    MPI_Get_processor_name(name, &length);
    MPI_Allgather(name, sizeof name, MPI_CHAR, names, sizeof name, MPI_CHAR, MPI_COMM_WORLD);
    for (int first = 0; first < size; first++)
        for (int second = first + 1; second < size; second++)
            same |= strcmp(names + (size_t)first * sizeof name, names + (size_t)second * sizeof name) == 0;
    free(names);
    return !same;
}

static int stop(const char *problem, int code) {
    if (rank == 0)
        fprintf(stderr, "osu_programs: %s\n", problem);
    MPI_Finalize();
    return code;
}

int main(int argc, char **argv) {
    const char *slash = strrchr(argv[0], '/'), *program = slash ? slash + 1 : argv[0];
    unsigned chosen = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    while (chosen < sizeof TESTS / sizeof *TESTS && strcmp(TESTS[chosen].program, program))
        chosen++;
    int right = chosen < sizeof TESTS / sizeof *TESTS && argc % 2 == 1;
    for (int place = 1; right && place < argc; place += 2) {
        if (!strcmp(argv[place], "-m"))
            right = sscanf(argv[place + 1], "%d:%d", &smallest, &largest) == 2 && smallest > 0 && largest <= LARGEST;
        else if (!strcmp(argv[place], "-i"))
            right = (iterations = atoi(argv[place + 1])) > 0 && iterations <= 10000;
        else if (!strcmp(argv[place], "-x"))
            right = (warmups = atoi(argv[place + 1])) > 0;
        else
            right = 0;
    }
    if (!right || size < 2 || size > MOST_RANKS || (TESTS[chosen].pairs && size != 2))
        return stop("wrong name, options or number of ranks", 2);
    if (!hosts_differ())
        return stop("two ranks run on one host", 4);
    out = malloc(LARGEST);
    in = malloc(LARGEST);
    if (rank == 0)
        printf("# OSU MPI %s Test\n# Own source in OSU's format; ranks sleep between polls.\n# Size %20s %12s\n", TESTS[chosen].title,
               TESTS[chosen].column, "Validation");
    int failed = 0;
    for (int bytes = smallest; bytes <= largest; bytes *= 2) {
        wrong = 0;
        double mine = TESTS[chosen].run(bytes), sum;
        int any;
        MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        MPI_Allreduce(&wrong, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        failed |= any;
        if (rank == 0)
            printf("%-10d %16.3f %12s\n", bytes, sum / size, any ? "Fail" : "Pass");
        fflush(stdout);
    }
    MPI_Finalize();
    return failed ? 3 : 0;
}
