/*
 * Acting on threads: registers, suspension, priority, signals, events.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include "target.h"

#include "check.h"

#include <sys/reg.h>
#include <sys/user.h>

static struct ps_prochandle *ph;
static td_thragent_t *ta;

static td_thrhandle_t handle_of(enum role role)
{
    td_thrhandle_t th = { ta, (psaddr_t)shared->of[role].id };
    return th;
}

static td_thrinfo_t info_of(enum role role)
{
    td_thrinfo_t ti;
    td_thrhandle_t th = handle_of(role);
    GIVES(TD_OK, td_thr_get_info(&th, &ti));
    return ti;
}

static int goes_on(enum role role)
{
    unsigned long before = shared->of[role].count;
    for (int i = 0; i < 20000; i++) {
        if (shared->of[role].count > before + 2)
            return 1;
        usleep(1000);
    }
    return 0;
}

static int stands_still(enum role role)
{
    unsigned long before = shared->of[role].count;
    usleep(30000);
    return shared->of[role].count == before;
}

static void check_registers(void)
{
    prgregset_t regs, again;
    prfpregset_t fp, fp_again;
    td_thrhandle_t th = handle_of(FUTEX);
    td_thrinfo_t ti = info_of(FUTEX);
    memset(regs, 0x55, sizeof regs);
    GIVES(TD_OK, td_thr_getgregs(&th, regs));
    CHECK(regs[RIP] == (unsigned long)ti.ti_pc && regs[RSP] == (unsigned long)ti.ti_sp, "%#llx %#llx",
          (long long)regs[RIP], (long long)regs[RSP]);
    CHECK(regs[FS_BASE] == shared->of[FUTEX].id, "%#llx", (long long)regs[FS_BASE]);
    CHECK(regs[ORIG_RAX] == SYS_futex, "%lld", (long long)regs[ORIG_RAX]);
    GIVES(TD_OK, td_thr_getfpregs(&th, &fp));
    CHECK(fp.mxcsr != 0 && fp.cwd != 0, "%#x %#x", fp.mxcsr, fp.cwd);
    /* The thread sleeps on as before. */
    EVENTUALLY(letter_of(shared->of[FUTEX].lwp) == 'S');

    /* A suspended thread keeps what is put into its registers. */
    th = handle_of(SPINNER);
    GIVES(TD_OK, td_thr_dbsuspend(&th));
    GIVES(TD_OK, td_thr_getgregs(&th, regs));
    CHECK(regs[R15] == 0, "%#llx", (long long)regs[R15]);
    regs[R15] = 0x1234567890;
    GIVES(TD_OK, td_thr_setgregs(&th, regs));
    memset(again, 0, sizeof again);
    GIVES(TD_OK, td_thr_getgregs(&th, again));
    CHECK(again[R15] == 0x1234567890, "%#llx", (long long)again[R15]);
    CHECK(!memcmp(regs, again, sizeof regs), "another register changed");
    GIVES(TD_OK, td_thr_getfpregs(&th, &fp));
    fp.xmm_space[20] = 0xabcdef;
    GIVES(TD_OK, td_thr_setfpregs(&th, &fp));
    memset(&fp_again, 0, sizeof fp_again);
    GIVES(TD_OK, td_thr_getfpregs(&th, &fp_again));
    CHECK(fp_again.xmm_space[20] == 0xabcdef, "%#x", fp_again.xmm_space[20]);
    int size = 0;
    GIVES(TD_OK, td_thr_getxregsize(&th, &size));
    CHECK(size >= 576 && size < 1 << 20, "%d bytes", size);
    unsigned char *x = calloc(1, (size_t)size + 8), *x_again = calloc(1, (size_t)size + 8);
    memset(x + size, 0x5a, 8);
    GIVES(TD_OK, td_thr_getxregs(&th, x));
    CHECK(x[size] == 0x5a && x[size + 7] == 0x5a, "written beyond its size");
    /* The XSAVE area begins with the other set; register xmm5 lies at 160 + 5 * 16. */
    CHECK(*(unsigned *)(x + 240) == 0xabcdef, "%#x", *(unsigned *)(x + 240));
    *(unsigned *)(x + 240) = 0x13579b;
    GIVES(TD_OK, td_thr_setxregs(&th, x));
    GIVES(TD_OK, td_thr_getxregs(&th, x_again));
    CHECK(*(unsigned *)(x_again + 240) == 0x13579b, "%#x", *(unsigned *)(x_again + 240));
    free(x), free(x_again);
    CHECK(shared->left_loop == 0, "it left its loop");
    GIVES(TD_OK, td_thr_dbresume(&th));
    /* And acts upon it. */
    EVENTUALLY(shared->left_loop == 0x1234567890);
    CHECK(goes_on(SPINNER), "the spinner stopped");

    th = handle_of(ZOMBIE);
    GIVES(TD_NOLWP, td_thr_getgregs(&th, regs));
    GIVES(TD_NOLWP, td_thr_setgregs(&th, regs));
    GIVES(TD_NOLWP, td_thr_getfpregs(&th, &fp));
    GIVES(TD_NOLWP, td_thr_setfpregs(&th, &fp));
    GIVES(TD_NOLWP, td_thr_getxregsize(&th, &size));
    GIVES(TD_NOLWP, td_thr_getxregs(&th, &fp));
    GIVES(TD_NOLWP, td_thr_setxregs(&th, &fp));
}

static void check_suspension(void)
{
    td_thrhandle_t spinner = handle_of(SPINNER), futex = handle_of(FUTEX), zombie = handle_of(ZOMBIE);
    td_thrhandle_t napper = handle_of(NAPPER);
    GIVES(TD_OK, td_thr_dbresume(&spinner)); /* nothing to do */
    GIVES(TD_OK, td_thr_dbsuspend(&spinner));
    GIVES(TD_OK, td_thr_dbsuspend(&spinner));
    CHECK(stands_still(SPINNER), "it runs on");
    CHECK(goes_on(NAPPER), "another thread stopped");
    td_thrinfo_t ti = info_of(SPINNER);
    CHECK(ti.ti_state == TD_THR_STOPPED && ti.ti_db_suspended, "state %d %d", ti.ti_state, ti.ti_db_suspended);
    CHECK(ti.ti_pc && ti.ti_sp, "a stopped thread has registers");
    GIVES(TD_OK, td_thr_dbsuspend(&futex));
    ti = info_of(FUTEX);
    CHECK(ti.ti_state == TD_THR_STOPPED_ASLEEP && ti.ti_db_suspended, "state %d %d", ti.ti_state,
          ti.ti_db_suspended);
    /* One call ends any number of suspensions. */
    GIVES(TD_OK, td_thr_dbresume(&spinner));
    CHECK(goes_on(SPINNER), "it was resumed");
    GIVES(TD_OK, td_thr_dbresume(&futex));
    CHECK(!info_of(FUTEX).ti_db_suspended, "it was resumed");
    EVENTUALLY(info_of(FUTEX).ti_state == TD_THR_SLEEP);
    GIVES(TD_NOLWP, td_thr_dbsuspend(&zombie));
    GIVES(TD_NOLWP, td_thr_dbresume(&zombie));

    /* Another agent sees it too, and cannot take it. */
    td_thragent_t *other;
    GIVES(TD_OK, td_ta_new(ph, &other));
    GIVES(TD_OK, td_thr_dbsuspend(&spinner));
    td_thrhandle_t through_other = { other, spinner.th_unique };
    GIVES(TD_OK, td_thr_get_info(&through_other, &ti));
    CHECK(ti.ti_state == TD_THR_STOPPED && ti.ti_db_suspended, "state %d %d", ti.ti_state, ti.ti_db_suspended);
    GIVES(TD_NOCAPAB, td_thr_dbsuspend(&through_other));
    GIVES(TD_OK, td_ta_delete(other));
    CHECK(stands_still(SPINNER), "the wrong agent resumed it");

    /* Deleting the agent resumes. */
    GIVES(TD_OK, td_thr_dbsuspend(&napper));
    GIVES(TD_OK, td_ta_delete(ta));
    CHECK(goes_on(SPINNER) && goes_on(NAPPER), "td_ta_delete did not resume");
    GIVES(TD_OK, td_ta_new(ph, &ta));

    /* Releasing the process handle resumes. */
    spinner = handle_of(SPINNER);
    GIVES(TD_OK, td_thr_dbsuspend(&spinner));
    CHECK(stands_still(SPINNER), "it runs on");
    tg_release(ph);
    CHECK(goes_on(SPINNER), "tg_release did not resume");
    GIVES(TD_BADPH, td_thr_dbresume(&spinner));
    GIVES(TD_BADPH, td_thr_get_info(&spinner, &ti));
    td_thragent_t *none = (td_thragent_t *)0x55;
    GIVES(TD_BADPH, td_ta_new(ph, &none));
    CHECK(none == NULL, "%p", (void *)none);
    GIVES(TD_BADPH, td_ta_delete(ta));
    GIVES(TD_OK, tg_attach_pid(shared->pid, &ph));
    GIVES(TD_OK, td_ta_new(ph, &ta));

    /* The death of a client resumes. */
    int ends[2];
    if (pipe(ends))
        exit(2);
    pid_t client = fork();
    if (client == 0) {
        struct ps_prochandle *its;
        td_thragent_t *agent;
        td_thrhandle_t th = handle_of(SPINNER);
        int ok = tg_attach_pid(shared->pid, &its) == TD_OK && td_ta_new(its, &agent) == TD_OK;
        th.th_ta_p = agent;
        ok = ok && td_thr_dbsuspend(&th) == TD_OK;
        ok = write(ends[1], ok ? "y" : "n", 1) == 1;
        for (;;)
            pause();
    }
    char answer = 0;
    CHECK(read(ends[0], &answer, 1) == 1 && answer == 'y', "the client could not suspend");
    CHECK(stands_still(SPINNER), "it runs on");
    kill(client, SIGKILL);
    waitpid(client, NULL, 0);
    CHECK(goes_on(SPINNER), "the client's death did not resume");
}

static void check_priority(void)
{
    td_thrhandle_t th = handle_of(REALTIME), zombie = handle_of(ZOMBIE), futex = handle_of(FUTEX);
    if (shared->of[REALTIME].priority) {
        GIVES(TD_OK, td_thr_setprio(&th, 21));
        struct sched_param param;
        sched_getparam(shared->of[REALTIME].lwp, &param);
        CHECK(param.sched_priority == 21, "%d", param.sched_priority);
        CHECK(sched_getscheduler(shared->of[REALTIME].lwp) == SCHED_FIFO, "the policy changed");
        CHECK(info_of(REALTIME).ti_pri == 21, "%d", info_of(REALTIME).ti_pri);
        GIVES(TD_ERR, td_thr_setprio(&th, 100));
        GIVES(TD_ERR, td_thr_setprio(&th, -1));
    } else {
        printf("SKIP real-time priorities are not permitted\n");
    }
    GIVES(TD_OK, td_thr_setprio(&futex, 0));
    GIVES(TD_ERR, td_thr_setprio(&futex, 1));
    GIVES(TD_NOLWP, td_thr_setprio(&zombie, 0));
}

static void check_signals(void)
{
    td_thrhandle_t th = handle_of(MASKED), zombie = handle_of(ZOMBIE), napper = handle_of(NAPPER);
    td_thrinfo_t ti = info_of(MASKED);
    sigset_t set = ti.ti_pending, mask;
    /* One more; those that are pending stay. */
    sigaddset(&set, SIGRTMIN + 3);
    GIVES(TD_OK, td_thr_setsigpending(&th, 1, &set));
    ti = info_of(MASKED);
    CHECK(!memcmp(&ti.ti_pending, &set, 8), "pending %#lx, not %#lx", *(long *)&ti.ti_pending, *(long *)&set);
    sigdelset(&set, SIGUSR1);
    GIVES(TD_NOCAPAB, td_thr_setsigpending(&th, 1, &set));
    sigemptyset(&set);
    GIVES(TD_NOCAPAB, td_thr_setsigpending(&th, 0, &set));
    GIVES(TD_NOLWP, td_thr_setsigpending(&zombie, 1, &set));

    /* A mask, and what it does. */
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR2);
    sigaddset(&mask, SIGRTMIN + 5);
    GIVES(TD_OK, td_thr_sigsetmask(&napper, &mask));
    ti = info_of(NAPPER);
    CHECK(!memcmp(&ti.ti_sigmask, &mask, 8), "mask %#lx", *(long *)&ti.ti_sigmask);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    GIVES(TD_OK, td_thr_setsigpending(&napper, 1, &set));
    CHECK(goes_on(NAPPER), "it stopped");
    CHECK(shared->of[NAPPER].signals == 0, "a blocked signal was delivered");
    ti = info_of(NAPPER);
    CHECK(!memcmp(&ti.ti_pending, &set, 8), "pending %#lx", *(long *)&ti.ti_pending);
    sigemptyset(&mask);
    GIVES(TD_OK, td_thr_sigsetmask(&napper, &mask));
    EVENTUALLY(shared->of[NAPPER].signals == 1);
    GIVES(TD_NOLWP, td_thr_sigsetmask(&zombie, &mask));
    /* Also on a thread that is held. */
    GIVES(TD_OK, td_thr_dbsuspend(&napper));
    sigaddset(&mask, SIGUSR1);
    GIVES(TD_OK, td_thr_sigsetmask(&napper, &mask));
    ti = info_of(NAPPER);
    CHECK(!memcmp(&ti.ti_sigmask, &mask, 8), "mask %#lx", *(long *)&ti.ti_sigmask);
    GIVES(TD_OK, td_thr_dbresume(&napper));
    CHECK(goes_on(NAPPER), "it stopped");
}

static void check_events(void)
{
    td_notify_t notify;
    td_event_msg_t message;
    td_thr_events_t set;
    td_thrhandle_t main_thread = handle_of(MAIN);
    memset(&notify, 0x55, sizeof notify);
    GIVES(TD_OK, td_ta_event_addr(ta, TD_CREATE, &notify));
    CHECK(notify.type == NOTIFY_BPT && notify.u.bptaddr == dlsym(RTLD_DEFAULT, "__nptl_create_event"), "%p",
          notify.u.bptaddr);
    GIVES(TD_OK, td_ta_event_addr(ta, TD_DEATH, &notify));
    CHECK(notify.u.bptaddr == dlsym(RTLD_DEFAULT, "__nptl_death_event"), "%p", notify.u.bptaddr);
    for (int event = -1; event < 40; event++)
        if (event != TD_CREATE && event != TD_DEATH)
            GIVES(TD_NOEVENT, td_ta_event_addr(ta, (td_event_e)event, &notify));
    GIVES(TD_NOMSG, td_ta_event_getmsg(ta, &message));
    GIVES(TD_NOMSG, td_thr_event_getmsg(&main_thread, &message));

    /* Masks add up, and are taken away bit by bit. */
    td_event_emptyset(&set);
    td_event_addset(&set, TD_CREATE);
    GIVES(TD_OK, td_thr_set_event(&main_thread, &set));
    td_event_emptyset(&set);
    td_event_addset(&set, TD_DEATH);
    GIVES(TD_OK, td_thr_set_event(&main_thread, &set));
    td_thrinfo_t ti = info_of(MAIN);
    CHECK(td_eventismember(&ti.ti_events, TD_CREATE) && td_eventismember(&ti.ti_events, TD_DEATH), "%#x",
          ti.ti_events.event_bits[0]);
    GIVES(TD_OK, td_thr_clear_event(&main_thread, &set));
    ti = info_of(MAIN);
    CHECK(td_eventismember(&ti.ti_events, TD_CREATE) && !td_eventismember(&ti.ti_events, TD_DEATH), "%#x",
          ti.ti_events.event_bits[0]);
    CHECK(ti.ti_traceme == 0, "not enabled yet");
    td_event_fillset(&set);
    GIVES(TD_OK, td_thr_clear_event(&main_thread, &set));

    /* An event: the process reports what it was told to, and we fetch it. */
    td_event_emptyset(&set);
    td_event_addset(&set, TD_CREATE);
    GIVES(TD_OK, td_ta_set_event(ta, &set));
    tell_target(MAKE_A_THREAD);
    GIVES(TD_NOMSG, td_ta_event_getmsg(ta, &message)); /* no thread has it switched on */
    GIVES(TD_OK, td_thr_event_enable(&main_thread, 1));
    CHECK(info_of(MAIN).ti_traceme != 0, "switched on");
    tell_target(MAKE_A_THREAD);
    GIVES(TD_OK, td_ta_event_getmsg(ta, &message));
    CHECK(message.event == TD_CREATE, "event %d", message.event);
    CHECK(message.th_p->th_ta_p == ta && message.th_p->th_unique == (psaddr_t)message.msg.data, "%p %#lx",
          message.th_p->th_unique, message.msg.data);
    GIVES(TD_NOMSG, td_ta_event_getmsg(ta, &message));
    GIVES(TD_OK, td_thr_event_enable(&main_thread, 0));
    CHECK(info_of(MAIN).ti_traceme == 0, "switched off");
    tell_target(MAKE_A_THREAD);
    GIVES(TD_NOMSG, td_ta_event_getmsg(ta, &message));
    td_event_fillset(&set);
    GIVES(TD_OK, td_ta_clear_event(ta, &set));
    CHECK(goes_on(SPINNER) && goes_on(NAPPER), "the process suffered");
}

/* A process that dies, or executes another program, while one of its threads is held: nobody waits for us. */
static void check_end_while_held(void)
{
    struct ps_prochandle *its;
    td_thragent_t *agent;
    for (int how = 0; how < 2; how++) {
        start_target(NULL);
        GIVES(TD_OK, tg_attach_pid(shared->pid, &its));
        GIVES(TD_OK, td_ta_new(its, &agent));
        td_thrhandle_t spinner = { agent, (psaddr_t)shared->of[SPINNER].id };
        td_thrhandle_t futex = { agent, (psaddr_t)shared->of[FUTEX].id };
        GIVES(TD_OK, td_thr_dbsuspend(&spinner));
        GIVES(TD_OK, td_thr_dbsuspend(&futex));
        if (how == 0) {
            td_thrhandle_t main_thread = { agent, (psaddr_t)shared->of[MAIN].id };
            GIVES(TD_OK, td_thr_dbsuspend(&main_thread));
            kill(shared->pid, SIGKILL);
        } else {
            shared->command = EXECUTE; /* ends at once */
        }
        pid_t ended = 0;
        EVENTUALLY((ended = waitpid(shared->pid, NULL, WNOHANG)) != 0);
        CHECK(ended == shared->pid, "%d", ended);
        CHECK(td_thr_dbresume(&spinner) != TD_NOCAPAB, "nothing to resume");
        td_thrinfo_t ti;
        CHECK(td_thr_get_info(&spinner, &ti) != TD_OK, "of a dead process");
        GIVES(TD_OK, td_ta_delete(agent));
        tg_release(its);
    }
}

int main(void)
{
    check_end_while_held();
    start_target(NULL);
    GIVES(TD_OK, tg_attach_pid(shared->pid, &ph));
    GIVES(TD_OK, td_ta_new(ph, &ta));
    check_registers();
    check_suspension();
    check_priority();
    check_signals();
    check_events();
    GIVES(TD_OK, td_ta_delete(ta));
    tg_release(ph);
    CHECK(goes_on(SPINNER) && goes_on(NAPPER), "the process suffered");
    end_target();
    return failures != 0;
}
