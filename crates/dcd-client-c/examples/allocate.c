/* Allocates a root and a block below it, writes, reads, and lets the device free what nothing points to.
 *
 *     cc -I include examples/allocate.c -L ../../target/release -ldcd_client_c -o allocate
 *     ./allocate CONTROL_SOCKET NBD_SOCKET
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dcd.h"

static dcd_device *device;

static void must(int result, const char *what) {
    if (result != 0) {
        fprintf(stderr, "%s: %s (%d)\n", what, dcd_error(device), result);
        if (*dcd_hint(device)) fprintf(stderr, "hint: %s\n", dcd_hint(device));
        exit(1);
    }
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s CONTROL_SOCKET NBD_SOCKET\n", argv[0]);
        return 2;
    }
    must(dcd_open(argv[1], argv[2], &device), "open");
    size_t bytes = dcd_block_bytes(device);
    printf("%" PRIu64 " blocks of %zu bytes\n", dcd_blocks(device), bytes);

    uint64_t root, children[2], freed;
    must(dcd_allocate(device, DCD_ANYWHERE, DCD_ROOT, &root, 1, NULL), "allocate");
    must(dcd_allocate(device, root, DCD_IMPORTANT | DCD_RANDOM, children, 2, NULL), "allocate");
    must(dcd_create_pointers(device, &root, &children[0], 1), "create a pointer");

    char *data = malloc(bytes), *found = malloc(bytes);
    memset(data, 'x', bytes);
    must(dcd_write(device, children[0], data, bytes), "write");
    must(dcd_flush(device), "flush");
    must(dcd_read(device, children[0], found, bytes), "read");
    printf("%s\n", memcmp(data, found, bytes) == 0 ? "read what was written" : "READ SOMETHING ELSE");

    uint32_t attributes;
    must(dcd_set_attributes(device, children, 1, DCD_HOT, DCD_RANDOM), "set attributes");
    must(dcd_get_attributes(device, children[0], &attributes), "get attributes");
    printf("attributes %#x\n", attributes);

    must(dcd_collect(device, &freed), "collect");
    printf("freed %" PRIu64 "\n", freed);
    int result = dcd_create_pointers(device, &root, &children[0], 1);
    printf("the same pointer again: %d, %s\n", result, dcd_error(device));
    must(dcd_delete_pointers(device, &root, &children[0], 1), "delete a pointer");
    free(data);
    free(found);
    dcd_close(device);
    return 0;
}
