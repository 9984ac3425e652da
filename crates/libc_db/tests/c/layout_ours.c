/*
 * layout_list.h against threadglass' headers: compile with -I of its include directory.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include <proc_service.h>
#include <thread_db.h>

#ifndef THREADGLASS_LIBC_DB
#error "these are the system's headers: compile with -I of threadglass' include directory"
#endif

#include "layout_list.h"
