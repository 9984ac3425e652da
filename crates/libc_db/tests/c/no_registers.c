/*
 * A client whose LWPs have no floating-point registers to show, and no extra ones.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#define NO_FPREGS 1
#include "target.h"

#include "check.h"
#include "service.h"

static struct ps_prochandle process;

int main(void)
{
    td_thragent_t *ta;
    prgregset_t regs;
    prfpregset_t fp;
    int size = 0;
    process.pid = process.claimed = start_target(NULL);
    GIVES(TD_OK, td_ta_new(&process, &ta));
    td_thrhandle_t th = { ta, (psaddr_t)shared->of[FUTEX].id };
    GIVES(TD_OK, td_thr_getgregs(&th, regs));
    memset(&fp, 0, sizeof fp);
    GIVES(TD_NOFPREGS, td_thr_getfpregs(&th, &fp));
    GIVES(TD_NOFPREGS, td_thr_setfpregs(&th, &fp));
    GIVES(TD_NOXREGS, td_thr_getxregsize(&th, &size));
    GIVES(TD_NOXREGS, td_thr_getxregs(&th, &fp));
    GIVES(TD_NOXREGS, td_thr_setxregs(&th, &fp));
    GIVES(TD_OK, td_ta_delete(ta));
    end_target();
    return failures != 0;
}
