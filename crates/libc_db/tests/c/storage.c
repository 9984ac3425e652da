/*
 * Thread-specific data and thread-local storage, compared with what the threads say of themselves.
 * Usage: storage LIBRARY (with thread-local variables, to be loaded by the process)
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include "target.h"

#include "check.h"

#include <link.h>

static td_thragent_t *ta;
static int last_key;

static int note_key(thread_key_t key, void (*destructor)(void *), void *arg)
{
    int *seen = arg;
    CHECK((int)key > last_key, "key %u is not above %d", key, last_key);
    last_key = (int)key;
    for (int i = 0; i < KEYS; i++)
        if (shared->keys[i] == key) {
            seen[i]++;
            CHECK(destructor == (i % 2 ? key_destructor : NULL), "key %u", key);
        }
    return 0;
}

static int stop_at_once(thread_key_t key, void (*destructor)(void *), void *arg)
{
    (void)key, (void)destructor;
    ++*(int *)arg;
    return 1;
}

static void check_tsd(void)
{
    int seen[KEYS] = { 0 }, calls = 0;
    last_key = -1;
    GIVES(TD_OK, td_ta_tsd_iter(ta, note_key, seen));
    for (int i = 0; i < KEYS; i++)
        CHECK(seen[i] == (i != 1), "key %d seen %d times", i, seen[i]);
    GIVES(TD_OK, td_ta_tsd_iter(ta, stop_at_once, &calls));
    CHECK(calls == 1, "%d calls", calls);
    for (int role = 0; role < LIVING; role++) {
        td_thrhandle_t th = { ta, (psaddr_t)shared->of[role].id };
        for (int i = 0; i < KEYS; i++) {
            void *value = (void *)0x55;
            int set = i % 3 == 0 && i < KEYS - 1;
            if (role == ZOMBIE)
                continue; /* its values went when it ended */
            if (i == 1) {
                GIVES(TD_BADKEY, td_thr_tsd(&th, shared->keys[i], &value));
                CHECK(value == NULL, "%p", value);
            } else if (i == KEYS - 1 && role == SPINNER) {
                int got = td_thr_tsd(&th, shared->keys[i], &value);
                CHECK((got == TD_OK || got == TD_NOTSD) && value == NULL, "%s %p", td_name(got), value);
            } else if (!set) {
                GIVES(TD_NOTSD, td_thr_tsd(&th, shared->keys[i], &value));
                CHECK(value == NULL, "%p", value);
            } else {
                GIVES(TD_OK, td_thr_tsd(&th, shared->keys[i], &value));
                CHECK(value == (void *)(uintptr_t)(0x1000 * (role + 1) + i), "role %d key %d: %p", role, i, value);
            }
        }
        void *value;
        GIVES(TD_BADKEY, td_thr_tsd(&th, 1023, &value));
        GIVES(TD_BADKEY, td_thr_tsd(&th, 1024, &value));
        GIVES(TD_BADKEY, td_thr_tsd(&th, 0xffffffff, &value));
    }
}

/* The link map of the object that has an address; the same in the target, which is our fork. */
static struct link_map *map_of(void *address)
{
    Dl_info info;
    struct link_map *map = NULL;
    return dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) ? map : NULL;
}

static unsigned long module_of(struct link_map *map)
{
    /* The program asks for its own number, as a debugger would. */
    void *handle = dlopen(map->l_name[0] ? map->l_name : NULL, RTLD_NOW | RTLD_NOLOAD);
    size_t id = 0;
    return handle && dlinfo(handle, RTLD_DI_TLS_MODID, &id) == 0 ? id : 0;
}

static void check_tls(void)
{
    struct link_map *program = map_of((void *)check_tls), *libc = map_of((void *)free);
    unsigned long module = module_of(program);
    CHECK(module == 1, "the program is module 1, not %lu", module);
    for (int role = 0; role < LIVING; role++) {
        const struct truth *truth = &shared->of[role];
        td_thrhandle_t th = { ta, (psaddr_t)truth->id };
        psaddr_t base = (psaddr_t)0x55, again = NULL, address = NULL;
        if (role == ZOMBIE)
            continue;
        GIVES(TD_OK, td_thr_tlsbase(&th, module, &base));
        /* The offset of the variable in its block, from our own copy. */
        td_thrhandle_t main_thread = { ta, (psaddr_t)shared->of[MAIN].id };
        psaddr_t main_base = NULL;
        GIVES(TD_OK, td_thr_tlsbase(&main_thread, module, &main_base));
        size_t offset = (size_t)((char *)shared->of[MAIN].tls - (char *)main_base);
        CHECK(offset < 4096, "%zu", offset);
        CHECK((char *)base + offset == truth->tls, "role %d: %p + %zu, not %p", role, base, offset, truth->tls);
        GIVES(TD_OK, td_thr_tls_get_addr(&th, program, offset, &address));
        CHECK(address == truth->tls, "role %d: %p, not %p", role, address, truth->tls);
        GIVES(TD_OK, td_thr_tls_get_addr(&th, program, 0, &again));
        CHECK(again == base, "role %d", role);

        GIVES(TD_NOTLS, td_thr_tlsbase(&th, 0, &base));
        CHECK(base == NULL, "%p", base);
        GIVES(TD_NOTLS, td_thr_tlsbase(&th, 60, &base));
        GIVES(TD_NOTLS, td_thr_tlsbase(&th, 1000000, &base));
        GIVES(TD_NOTLS, td_thr_tlsbase(&th, ~0ul, &base));
        GIVES(TD_DBERR, td_thr_tls_get_addr(&th, (psaddr_t)0x10, 0, &base));
        /* libc has storage of its own (errno): another module, another block. */
        GIVES(TD_OK, td_thr_tls_get_addr(&th, libc, 0, &address));
        CHECK(address != again, "libc and the program share a block");
    }
}

/* The library that only the target has loaded: which module it is must be found by trying. */
static void check_loaded_tls(void)
{
    unsigned long module = 0;
    td_thrhandle_t futex = { ta, (psaddr_t)shared->of[FUTEX].id };
    psaddr_t base;
    for (unsigned long i = 1; i < 50 && !module; i++)
        if (td_thr_tlsbase(&futex, i, &base) == TD_OK && (char *)base <= (char *)shared->of[FUTEX].loaded_tls &&
            (char *)base + 3100 > (char *)shared->of[FUTEX].loaded_tls)
            module = i;
    CHECK(module != 0, "no module has the loaded library's variable");
    size_t offset = (size_t)((char *)shared->of[FUTEX].loaded_tls - (char *)base);
    for (int role = 0; role < LIVING; role++) {
        td_thrhandle_t th = { ta, (psaddr_t)shared->of[role].id };
        if (role == ZOMBIE)
            continue;
        if (role == NAPPER) {
            base = (psaddr_t)0x55;
            GIVES(TD_TLSDEFER, td_thr_tlsbase(&th, module, &base));
            CHECK(base == NULL, "%p", base);
        } else {
            GIVES(TD_OK, td_thr_tlsbase(&th, module, &base));
            CHECK((char *)base + offset == shared->of[role].loaded_tls, "role %d: %p", role, base);
        }
    }
}

int main(int argc, char **argv)
{
    struct ps_prochandle *ph;
    pid_t pid = start_target(argc > 1 ? argv[1] : NULL);
    GIVES(TD_OK, tg_attach_pid(pid, &ph));
    GIVES(TD_OK, td_ta_new(ph, &ta));
    check_tsd();
    check_tls();
    if (argc > 1)
        check_loaded_tls();
    GIVES(TD_OK, td_ta_delete(ta));
    tg_release(ph);
    end_target();
    return failures != 0;
}
