/* MPI calls that deliver one wrong byte: the byte WRONG_AT of the large message WRONG_MESSAGE (counted from 1) that a rank receives.
 * Ranks say that they run on different hosts. Linked with a program under test, by MPI's profiling interface.
 */
#include <mpi.h>
#include <stdlib.h>

enum { LARGE = 1024 };

static void disturb(void *buffer, int count) {
    static int messages = 0;
    const char *at = getenv("WRONG_AT"), *message = getenv("WRONG_MESSAGE");
    if (at && message && count > LARGE && ++messages == atoi(message))
        ((char *)buffer)[atoi(at)] ^= 1;
}

int MPI_Get_processor_name(char *name, int *length) {
    int rank;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    name[0] = (char)('a' + rank);
    name[1] = 0;
    return *length = 1, MPI_SUCCESS;
}

int MPI_Recv(void *buffer, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Status *status) {
    int code = PMPI_Recv(buffer, count, type, source, tag, comm, status);
    disturb(buffer, count);
    return code;
}

int MPI_Sendrecv(const void *out, int out_count, MPI_Datatype out_type, int to, int out_tag, void *in, int in_count, MPI_Datatype in_type,
                 int from, int in_tag, MPI_Comm comm, MPI_Status *status) {
    int code = PMPI_Sendrecv(out, out_count, out_type, to, out_tag, in, in_count, in_type, from, in_tag, comm, status);
    disturb(in, in_count);
    return code;
}
