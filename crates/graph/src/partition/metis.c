// How METIS ends where it cannot go on: this stands in for error.c of GKlib, the library that METIS is written on.
//
// There, a failure raises SIGABRT or SIGTERM, and while METIS runs, handlers of the whole process are replaced by one
// that jumps back to where METIS began. A SIGTERM from outside would be taken for a failure, and one that comes to
// another thread would make that thread jump into memory that it never set. Here a failure jumps by itself, on the
// thread that it happens on, and signals are left alone.
//
// All that METIS uses of error.c is defined, so the linker never looks for error.c: these come first, as
// graphweft_metis is asked for by the crate that depends on METIS. If a newer METIS used more of it, both would be
// linked, and the linker would refuse what is defined twice.

#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>

// Where METIS began, on each thread that it runs on; -1 while it does not. METIS never calls itself.
__thread int gk_cur_jbufs = -1;
__thread jmp_buf gk_jbufs[1];

int gk_sigtrap(void) {
    gk_cur_jbufs = 0;
    return 1;
}

int gk_siguntrap(void) {
    gk_cur_jbufs = -1;
    return 1;
}

// `reason` is SIGABRT where memory is short and SIGTERM else; METIS makes an error code of it.
void gk_errexit(int reason, char *format, ...) {
    (void)format;
    if (gk_cur_jbufs < 0) abort();
    longjmp(gk_jbufs[0], reason);
}

void errexit(char *format, ...) {
    (void)format;
    gk_errexit(SIGTERM, "");
}

// Whoever calls it has this file linked.
void graphweft_metis(void) {}
