/*
 * Loaded into programs of the guest (LD_PRELOAD): a clock that costs no system call, as on a real machine. User Mode Linux has a
 * system call of some microseconds in its place, which no machine pays that has a vDSO.
 *
 * Time is the processor's time stamp counter since the kernel was last asked; it is asked again after CORRECT_NS, so what differs is what
 * the counter drifts meanwhile.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#define SECOND_NS 1000000000ll
#define CALIBRATE_NS 40000000ll
#define CORRECT_NS 20000000ll
#define ENOUGH_NS 30000
#define TRIES 5
#define CLOCKS 8
#define VARIABLE "GUEST_NS_PER_TICK"

static double ns_per_tick;

/* What the kernel said last. For each thread: no lock, and nothing that a fork could leave half written. */
static __thread struct {
    uint64_t ticks;
    int64_t ns, last_ns;
} asked[CLOCKS];

static int64_t ask(clockid_t clock)
{
    struct timespec now;

    syscall(SYS_clock_gettime, clock, &now);
    return now.tv_sec * SECOND_NS + now.tv_nsec;
}

/* What the kernel says, and the counter at that moment: whoever lost the processor between the two tries again. */
static int64_t ask_with_ticks(clockid_t clock, uint64_t *ticks)
{
    uint64_t shortest = UINT64_MAX;
    int64_t ns = 0;

    for (int left = TRIES; left > 0; left--) {
        uint64_t before = __rdtsc();
        int64_t found = ask(clock);
        uint64_t took = __rdtsc() - before;

        if (took < shortest) {
            shortest = took;
            ns = found;
            *ticks = before + took / 2;
        }
        if (ns_per_tick > 0 && (double)shortest * ns_per_tick < ENOUGH_NS)
            break;
    }
    return ns;
}

/* Once: programs that this one starts have it from the environment. */
__attribute__((constructor)) static void calibrate(void)
{
    const char *known = getenv(VARIABLE);
    char text[32];

    if (known) {
        ns_per_tick = strtod(known, 0);
        return;
    }
    struct timespec pause = {0, CALIBRATE_NS};
    uint64_t first_ticks = 0, last_ticks = 0;
    int64_t first_ns = ask_with_ticks(CLOCK_MONOTONIC, &first_ticks);

    syscall(SYS_nanosleep, &pause, 0);
    int64_t last_ns = ask_with_ticks(CLOCK_MONOTONIC, &last_ticks);
    ns_per_tick = (double)(last_ns - first_ns) / (double)(last_ticks - first_ticks);
    snprintf(text, sizeof text, "%.9f", ns_per_tick);
    setenv(VARIABLE, text, 1);
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
    if (ns_per_tick == 0 || (clock != CLOCK_MONOTONIC && clock != CLOCK_REALTIME && clock != CLOCK_BOOTTIME && clock != CLOCK_MONOTONIC_RAW))
        return syscall(SYS_clock_gettime, clock, out);
    int64_t since_ns = (int64_t)((double)(__rdtsc() - asked[clock].ticks) * ns_per_tick);
    if (asked[clock].ticks == 0 || since_ns > CORRECT_NS) {
        asked[clock].ns = ask_with_ticks(clock, &asked[clock].ticks);
        since_ns = (int64_t)((double)(__rdtsc() - asked[clock].ticks) * ns_per_tick);
    }
    int64_t ns = asked[clock].ns + since_ns;
    /* Only the time of day may go back. */
    if (clock != CLOCK_REALTIME && ns < asked[clock].last_ns)
        ns = asked[clock].last_ns;
    asked[clock].last_ns = ns;
    out->tv_sec = ns / SECOND_NS;
    out->tv_nsec = ns % SECOND_NS;
    return 0;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    struct timespec now;

    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}
