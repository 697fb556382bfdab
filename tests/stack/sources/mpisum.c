/* Each rank makes checksums of a text with zlib and xxHash; the first rank says whether all made the same ones. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>
#include <zlib.h>

int main(int argc, char **argv)
{
    const char text[] = "a software stack";
    unsigned long long own[2], least[2], greatest[2];
    int rank, ranks;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    own[0] = crc32(0, (const unsigned char *)text, strlen(text));
    own[1] = XXH64(text, strlen(text), 0);
    MPI_Reduce(own, least, 2, MPI_UNSIGNED_LONG_LONG, MPI_MIN, 0, MPI_COMM_WORLD);
    MPI_Reduce(own, greatest, 2, MPI_UNSIGNED_LONG_LONG, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        int agree = least[0] == greatest[0] && least[1] == greatest[1];
        printf("%d ranks %s: crc32 %08llx, xxh64 %016llx\n", ranks, agree ? "agree" : "differ", own[0], own[1]);
    }
    MPI_Finalize();
    return 0;
}
