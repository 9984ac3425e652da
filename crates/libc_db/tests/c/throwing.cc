// A client in C++: callbacks and ps_ routines that throw, and calls from inside callbacks. The process is a
// fixture, whose pid is argument 1; its libc is the file that we use ourselves.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <link.h>
#include <malloc.h>
#include <string>
#include <sys/resource.h>
#include <vector>

struct Thrown {
    const char *from;
};

static long throw_at, calls_made;

static void before_call(const char *name)
{
    if (++calls_made == throw_at)
        throw Thrown{ name };
}

static void *find_symbol(const char *name);

#define BEFORE_CALL(name) before_call(name)
#define FIND_SYMBOL(name) find_symbol(name)
#define WITH_STOP 1
#include "check.h"
#include "service.h"

static ps_prochandle process;

// Where a file is mapped in the process.
static uintptr_t base_of(const char *file)
{
    std::string path = "/proc/" + std::to_string(process.pid) + "/maps";
    FILE *maps = fopen(path.c_str(), "r");
    char line[512];
    uintptr_t base = 0;
    while (!base && maps && fgets(line, sizeof line, maps)) {
        char *name = strchr(line, '/');
        if (name && (name[strcspn(name, "\n")] = 0, !strcmp(name, file)))
            base = strtoul(line, nullptr, 16);
    }
    if (maps)
        fclose(maps);
    return base;
}

static void *find_symbol(const char *name)
{
    void *ours = dlsym(RTLD_DEFAULT, name);
    Dl_info info;
    if (!ours || !dladdr(ours, &info))
        return nullptr;
    char real[4096];
    uintptr_t base = realpath(info.dli_fname, real) ? base_of(real) : 0;
    return base ? (void *)(base + ((uintptr_t)ours - (uintptr_t)info.dli_fbase)) : nullptr;
}

// How often this thread has gone to sleep. Whoever waits for a call of ours that never ends does so again and again, for two
// seconds; whoever does not wait hardly ever does, however long a busy machine makes it take.
static long naps()
{
    rusage used;
    getrusage(RUSAGE_THREAD, &used);
    return used.ru_nvcsw;
}

template <typename F> static td_err_e iterate(td_thragent_t *ta, F on_thread)
{
    auto call = [](const td_thrhandle_t *th, void *arg) { return (*(F *)arg)(th); };
    return td_ta_thr_iter(ta, call, &on_thread, TD_THR_ANY_STATE, TD_THR_LOWEST_PRIORITY, TD_SIGNO_MASK,
                          TD_THR_ANY_USER_FLAGS);
}

template <typename F> static td_err_e iterate_keys(td_thragent_t *ta, F on_key)
{
    auto call = [](thread_key_t key, void (*)(void *), void *arg) { return (*(F *)arg)(key); };
    return td_ta_tsd_iter(ta, call, &on_key);
}

// Runs to the end, or to the exception, whose absence is an error.
template <typename F> static bool throws(F act)
{
    try {
        act();
    } catch (const Thrown &) {
        return true;
    }
    return false;
}

static std::vector<td_thrhandle_t> threads_of(td_thragent_t *ta)
{
    std::vector<td_thrhandle_t> all;
    GIVES(TD_OK, iterate(ta, [&](const td_thrhandle_t *th) { return all.push_back(*th), 0; }));
    return all;
}

static void delete_at_once(td_thragent_t *ta)
{
    long before = naps();
    GIVES(TD_OK, td_ta_delete(ta));
    CHECK(naps() - before < 10, "td_ta_delete waited %ld times", naps() - before);
    GIVES(TD_BADPH, td_ta_delete(ta));
}

static void callbacks_that_throw(ps_prochandle *ph)
{
    td_thragent_t *ta = nullptr;
    GIVES(TD_OK, td_ta_new(ph, &ta));
    size_t count = threads_of(ta).size();
    CHECK(count > 3, "%zu threads", count);
    size_t used = 0;
    for (int round = 0; round < 100; round++) {
        // What the first rounds leave is kept for the next.
        if (round == 20)
            used = mallinfo2().uordblks;
        int calls = 0;
        CHECK(throws([&] {
                  iterate(ta, [&](const td_thrhandle_t *th) -> int {
                      td_thrinfo_t ti;
                      GIVES(TD_OK, td_thr_get_info(th, &ti));
                      if (++calls == 3)
                          throw Thrown{ "callback" };
                      return 0;
                  });
              }),
              "the exception was lost");
        CHECK(calls == 3, "%d calls", calls);
        CHECK(throws([&] { iterate_keys(ta, [](thread_key_t) -> int { throw Thrown{ "callback" }; }); }),
              "the exception was lost");
        // Out of an iteration inside an iteration.
        CHECK(throws([&] {
                  iterate(ta, [&](const td_thrhandle_t *) {
                      return (int)iterate(ta, [](const td_thrhandle_t *) -> int { throw Thrown{ "inner" }; });
                  });
              }),
              "the exception was lost");
        CHECK(threads_of(ta).size() == count, "the agent forgot its threads");
    }
    CHECK(mallinfo2().uordblks < used + 65536, "%zu bytes, then %zu", used, mallinfo2().uordblks);
    CHECK(service.stopped == service.continued, "%d stops, %d continues", service.stopped, service.continued);
    delete_at_once(ta);
}

static void calls_inside_callbacks(ps_prochandle *ph)
{
    td_thragent_t *ta = nullptr;
    GIVES(TD_OK, td_ta_new(ph, &ta));
    size_t count = threads_of(ta).size(), seen = 0;
    GIVES(TD_OK, iterate(ta, [&](const td_thrhandle_t *th) {
              td_thrinfo_t ti;
              td_thrhandle_t again;
              psaddr_t base;
              void *value;
              int number;
              seen++;
              GIVES(TD_OK, td_thr_get_info(th, &ti));
              if (ti.ti_state != TD_THR_ZOMBIE) {
                  GIVES(TD_OK, td_ta_map_lwp2thr(ta, ti.ti_lid, &again));
                  CHECK(!memcmp(&again, th, sizeof again), "%p", again.th_unique);
              }
              GIVES(TD_OK, td_ta_map_id2thr(ta, ti.ti_tid, &again));
              GIVES(TD_OK, td_thr_validate(th));
              // libc's own storage, which every program has.
              td_err_e rc = td_thr_tlsbase(th, 1, &base);
              CHECK(rc == TD_OK || rc == TD_NOTLS, "%s", td_name(rc));
              rc = td_thr_tsd(th, 0, &value);
              CHECK(rc == TD_OK || rc == TD_NOTSD || rc == TD_BADKEY, "%s", td_name(rc));
              GIVES(TD_OK, td_ta_get_nthreads(ta, &number));
              CHECK((size_t)number == count && threads_of(ta).size() == count, "%d", number);
              GIVES(TD_OK, iterate_keys(ta, [](thread_key_t) { return 0; }));
              td_thragent_t *other;
              GIVES(TD_OK, td_ta_new(ph, &other));
              GIVES(TD_OK, td_ta_delete(other));
              return 0;
          }));
    CHECK(seen == count, "%zu of %zu", seen, count);
    // Its end, from inside.
    int after = 0;
    long before = naps();
    td_err_e rc = iterate(ta, [&](const td_thrhandle_t *th) {
        td_thrinfo_t ti;
        if (after++ == 0)
            GIVES(TD_OK, td_ta_delete(ta));
        GIVES(TD_BADPH, td_thr_get_info(th, &ti));
        GIVES(TD_BADPH, td_ta_delete(ta));
        return 0;
    });
    CHECK(rc == TD_OK || rc == TD_BADPH, "%s", td_name(rc));
    CHECK(naps() - before < 10, "waited %ld times", naps() - before);
    GIVES(TD_BADPH, iterate(ta, [](const td_thrhandle_t *) { return 0; }));
}

// The k-th ps_ call throws, for every k.
template <typename F> static void routine_throws(const char *name, td_thragent_t *ta, F act)
{
    size_t count = threads_of(ta).size();
    for (long k = 1;; k++) {
        throw_at = k;
        calls_made = 0;
        bool thrown = throws(act);
        bool reached = calls_made >= k;
        throw_at = 0;
        CHECK(thrown == reached, "%s, call %ld: the exception was lost", name, k);
        CHECK(service.stopped == service.continued, "%s, call %ld: %d stops, %d continues", name, k, service.stopped,
              service.continued);
        if (!reached)
            break;
        CHECK(k < 2000, "no end");
    }
    CHECK(threads_of(ta).size() == count, "%s: the agent forgot its threads", name);
}

static void routines_that_throw()
{
    td_thragent_t *ta = nullptr;
    GIVES(TD_OK, td_ta_new(&process, &ta));
    std::vector<td_thrhandle_t> all = threads_of(ta);
    td_thrhandle_t th = all[1];
    td_thrinfo_t ti;
    td_thrhandle_t found;
    psaddr_t base;
    prgregset_t regs;
    void *value;
    int number;
    GIVES(TD_OK, td_thr_get_info(&th, &ti));
    lwpid_t lwp = ti.ti_lid;
    routine_throws("td_ta_new", ta, [&] {
        td_thragent_t *other = nullptr;
        GIVES(TD_OK, td_ta_new(&process, &other));
        GIVES(TD_OK, td_ta_delete(other));
    });
    routine_throws("td_ta_thr_iter", ta, [&] { iterate(ta, [](const td_thrhandle_t *) { return 0; }); });
    routine_throws("td_ta_get_nthreads", ta, [&] { td_ta_get_nthreads(ta, &number); });
    routine_throws("td_ta_map_lwp2thr", ta, [&] { td_ta_map_lwp2thr(ta, lwp, &found); });
    routine_throws("td_ta_map_id2thr", ta, [&] { td_ta_map_id2thr(ta, ti.ti_tid, &found); });
    routine_throws("td_thr_get_info", ta, [&] {
        td_thrinfo_t again;
        td_thr_get_info(&th, &again);
    });
    routine_throws("td_ta_tsd_iter", ta, [&] { iterate_keys(ta, [](thread_key_t) { return 0; }); });
    routine_throws("td_thr_tsd", ta, [&] { td_thr_tsd(&th, 0, &value); });
    routine_throws("td_thr_tlsbase", ta, [&] { td_thr_tlsbase(&th, 1, &base); });
    routine_throws("td_thr_getgregs", ta, [&] { td_thr_getgregs(&th, regs); });
    routine_throws("td_ta_event_getmsg", ta, [&] {
        td_event_msg_t message;
        td_ta_event_getmsg(ta, &message);
    });
    td_synchandle_t sh = { ta, th.th_unique }; // an address that can be read
    auto on_object = [](const td_synchandle_t *, void *) { return 0; };
    auto on_thread = [](const td_thrhandle_t *, void *) { return 0; };
    routine_throws("td_ta_sync_iter", ta, [&] { td_ta_sync_iter(ta, on_object, nullptr); });
    routine_throws("td_sync_get_info", ta, [&] {
        td_syncinfo_t si;
        td_sync_get_info(&sh, &si);
    });
    routine_throws("td_sync_waiters", ta, [&] { td_sync_waiters(&sh, on_thread, nullptr); });
    routine_throws("td_thr_lockowner", ta, [&] { td_thr_lockowner(&th, on_object, nullptr); });
    routine_throws("td_thr_sleepinfo", ta, [&] {
        td_synchandle_t found_object;
        td_thr_sleepinfo(&th, &found_object);
    });
    // ps_lcontinue throws when the agent ends: the agent is gone all the same.
    td_thragent_t *other = nullptr;
    GIVES(TD_OK, td_ta_new(&process, &other));
    td_thrhandle_t held = { other, th.th_unique };
    GIVES(TD_OK, td_thr_dbsuspend(&held));
    throw_at = 1;
    calls_made = 0;
    CHECK(throws([&] { td_ta_delete(other); }), "the exception was lost");
    throw_at = 0;
    GIVES(TD_BADPH, td_ta_delete(other));
    // The identity of the process is checked anew for each agent; each of its steps may throw.
    for (long k = 1; k < 12; k++) {
        GIVES(TD_OK, td_ta_new(&process, &other));
        td_thrhandle_t its = { other, th.th_unique };
        throw_at = k;
        calls_made = 0;
        throws([&] {
            td_thrinfo_t again;
            td_thr_get_info(&its, &again);
        });
        throw_at = 0;
        td_thrinfo_t again;
        GIVES(TD_OK, td_thr_get_info(&its, &again));
        CHECK(again.ti_lid == lwp, "%d", again.ti_lid);
        delete_at_once(other);
    }
    delete_at_once(ta);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    process.pid = process.claimed = (pid_t)atoi(argv[1]);
    ps_prochandle *ready_made;
    GIVES(TD_OK, tg_attach_pid(process.pid, &ready_made));
    callbacks_that_throw(ready_made);
    callbacks_that_throw(&process);
    calls_inside_callbacks(ready_made);
    calls_inside_callbacks(&process);
    routines_that_throw();
    tg_release(ready_made);
    return failures != 0;
}
