/* The work for profilers: 70, 20 and 10 % of the time in three functions, which also find out for how long they
 * were interrupted. The speed of a virtual machine changes by more from second to second than a profiler costs,
 * so two runs of the same work cannot be compared by their CPU time; but a loop that looks at the time stamp
 * counter sees each interruption by itself, whatever the speed is. */
#define _GNU_SOURCE
#include <stdio.h>
#include <time.h>
#include <x86intrin.h>

/* Counts down the first argument; adds gaps of more than the third to what the second points at. The same
 * instructions at the same place of a cache line, so that the same count takes the same time; a little after the
 * function's beginning, because gprof's cells may reach over it. */
#define LOOP(name) \
    ".balign 64\n.globl " name "\n.type " name ",@function\n" name ":\n" \
    "mov %rdx,%r10\nrdtsc\nshl $32,%rdx\nor %rdx,%rax\n" \
    "1: mov %rax,%r8\nrdtsc\nshl $32,%rdx\nor %rdx,%rax\nmov %rax,%r9\nsub %r8,%r9\ncmp %r10,%r9\nja 3f\n" \
    "2: dec %rdi\njnz 1b\nret\n3: add %r9,(%rsi)\njmp 2b\n.size " name ",.-" name "\n.org " name "+64\n"
__asm__(".pushsection .text.split,\"ax\",@progbits\n" LOOP("seventy") LOOP("twenty") LOOP("ten") ".popsection\n");
void seventy(unsigned long, unsigned long *, unsigned long), twenty(unsigned long, unsigned long *, unsigned long),
    ten(unsigned long, unsigned long *, unsigned long);

struct took {
    double cpu, interrupted; /* ms; the second is the part of the first that was not spent on the work */
};

static double stamps_per_ms;

static double ms(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

/* So many times a cycle of 10 units. */
static struct took split_work(int cycles, unsigned long unit)
{
    unsigned long gaps = 0, least = stamps_per_ms / 2000; /* half a microsecond: no turn of the loop takes that */
    double cpu = ms(CLOCK_THREAD_CPUTIME_ID);
    unsigned long start = __rdtsc();
    for (int i = 0; i < cycles; i++) {
        seventy(7 * unit, &gaps, least);
        twenty(2 * unit, &gaps, least);
        ten(unit, &gaps, least);
    }
    unsigned long stamps = __rdtsc() - start;
    cpu = ms(CLOCK_THREAD_CPUTIME_ID) - cpu;
    /* What passed outside of gaps was the work; the rest of the CPU time went to interrupts and signals. In the
     * gaps is also the time of others on this CPU, which is not ours. */
    return (struct took){cpu, cpu - (stamps - gaps) / stamps_per_ms};
}

/* That of the whole process, of which the threads of the work are a part: what else there is, a profiler's thread
 * say, only disturbs. */
static struct took split_sum(double process_cpu, const struct took *took, int threads)
{
    struct took all = {process_cpu, process_cpu};
    for (int i = 0; i < threads; i++)
        all.interrupted -= took[i].cpu - took[i].interrupted;
    return all;
}

/* To be called first: how fast the counter is. Outside of the three functions, where nobody counts ticks. */
static void split_start(void)
{
    double before = ms(CLOCK_MONOTONIC);
    unsigned long start = __rdtsc();
    while (ms(CLOCK_MONOTONIC) - before < 100)
        ;
    stamps_per_ms = (__rdtsc() - start) / (ms(CLOCK_MONOTONIC) - before);
}

/* The unit of a cycle of so many ms. */
static unsigned long split_unit(double cycle_ms)
{
    /* The fastest of some tries is the one that was disturbed least. */
    double best = 1e9;
    for (int i = 0; i < 10; i++) {
        unsigned long gaps = 0;
        double before = ms(CLOCK_THREAD_CPUTIME_ID);
        ten(500000, &gaps, ~0ul);
        double took = ms(CLOCK_THREAD_CPUTIME_ID) - before;
        best = took < best ? took : best;
    }
    return 500000 / best * cycle_ms / 10;
}
