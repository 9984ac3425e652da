/* A process without tasks: its threads are shown, whatever is asked for.
 *
 *   no_tasks PID
 */
#include "check.h"
#include <proc_service.h>
#include <thread_db.h>

int main(int argc, char **argv) {
    struct ps_prochandle *ph;
    td_thragent_t *ta;
    int before, after;
    if (argc != 2)
        return 2;
    GIVES(TD_OK, tg_attach_pid(atoi(argv[1]), &ph));
    GIVES(TD_OK, td_ta_new(ph, &ta));
    GIVES(TD_OK, td_ta_get_nthreads(ta, &before));
    GIVES(TD_NOCAPAB, tg_show_tasks(ta, 1));
    GIVES(TD_OK, td_ta_get_nthreads(ta, &after));
    CHECK(before > 1 && after == before, "%d, then %d", before, after);
    GIVES(TD_OK, tg_show_tasks(ta, 0));
    GIVES(TD_OK, td_ta_get_nthreads(ta, &after));
    CHECK(after == before, "%d, then %d", before, after);
    GIVES(TD_OK, td_ta_delete(ta));
    tg_release(ph);
    return failures != 0;
}
