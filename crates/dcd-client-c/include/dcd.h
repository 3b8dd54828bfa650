/* A volume of dcd for programs in C: blocks, free blocks, pointers, attributes (the device interface of the DHIS paper).
 *
 * Blocks are extents of the volume, numbered from zero. Every function returns 0, or a negative number of Linux's errno
 * (-ENOSPC: no room; -EIO: a disk, or the connection; -EINVAL: a bad argument); dcd_error() then says in words what it is.
 * A device may be used by one thread at a time.
 *
 * Link with -ldcd_client_c. */

#ifndef DCD_H
#define DCD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What blocks are. Any of a pair that contradict each other is -EINVAL. */
#define DCD_IMPORTANT  0x001u /* not with TEMPORARY */
#define DCD_RANDOM     0x002u /* not with SEQUENTIAL */
#define DCD_SEQUENTIAL 0x004u
#define DCD_HOT        0x008u /* not with COLD */
#define DCD_COLD       0x010u
#define DCD_READ_MOST  0x020u /* not with WRITE_MOST */
#define DCD_WRITE_MOST 0x040u
#define DCD_TEMPORARY  0x080u
#define DCD_METADATA   0x100u
#define DCD_ROOT       0x200u /* where the collection of unreachable blocks begins */

/* For dcd_allocate(): anywhere. */
#define DCD_ANYWHERE UINT64_MAX

typedef struct dcd_device dcd_device;

/* Connects to the --control socket and the --nbd unix:SOCKET of `dcd serve`. *device is to be closed, also after an
 * error, when it says in words what went wrong. */
int dcd_open(const char *control_socket, const char *nbd_socket, dcd_device **device);
void dcd_close(dcd_device *device);

/* The last error in words; valid until the next call for this device. */
const char *dcd_error(const dcd_device *device);
/* What to do about it; empty if nothing is known. */
const char *dcd_hint(const dcd_device *device);

size_t dcd_block_bytes(const dcd_device *device);
uint64_t dcd_blocks(const dcd_device *device);

/* Whole blocks from `block` on. */
int dcd_read(dcd_device *device, uint64_t block, void *data, size_t bytes);
int dcd_write(dcd_device *device, uint64_t block, const void *data, size_t bytes);
/* Makes everything before it durable: writes, allocations, pointers, attributes. */
int dcd_flush(dcd_device *device);

/* alloc_block: `count` free blocks, near another one or DCD_ANYWHERE. When there is no room for all, *found says how many
 * were found; found may be NULL. */
int dcd_allocate(dcd_device *device, uint64_t near, uint32_t attributes, uint64_t *blocks, size_t count, size_t *found);

/* create_ptr and delete_ptr, for `count` pointers at once: from[i] points to to[i]. The first error is returned; the
 * others were tried all the same. */
int dcd_create_pointers(dcd_device *device, const uint64_t *from, const uint64_t *to, size_t count);
int dcd_delete_pointers(dcd_device *device, const uint64_t *from, const uint64_t *to, size_t count);

/* set_attr and get_attr. */
int dcd_set_attributes(dcd_device *device, const uint64_t *blocks, size_t count, uint32_t set, uint32_t clear);
int dcd_get_attributes(dcd_device *device, uint64_t block, uint32_t *attributes);

/* Frees allocated blocks that cannot be reached from a ROOT; freed may be NULL. */
int dcd_collect(dcd_device *device, uint64_t *freed);

#ifdef __cplusplus
}
#endif

#endif
