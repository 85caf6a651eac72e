/* object: what can be said of a shared object before it is opened. The system's loader maps the file and believes its
 * headers, so a file that is cut ends the process (SIGBUS), and one made for another processor does when its code runs
 * (SIGILL). Here both are errors.
 *
 * Every program that the C compiler makes says what it needs: behind its text stands isa_note, a variable that lists the
 * instructions the compiler was allowed to use, told by the compiler itself. Objects without one (of earlier versions)
 * are not asked.
 */
#ifndef NS_OBJECT_H
#define NS_OBJECT_H
#include "base/base.h"

/* ---- shared objects (elf.c) ---- */
/* Raises NS_ERR_VALUE if the bytes are no whole shared object, NS_ERR_RUNTIME if this machine cannot run it. what: its
 * name in messages. Nothing is promised of code that somebody changed: checksums are the business of who keeps the file. */
void object_check(Err *e, const void *image, size_t n, const char *what);
/* Whether it is a shared object for this machine and processor. Any bytes will do. */
bool object_runs(const void *image, size_t n);
/* The bytes of an exported variable; NULL if there is none, or it does not lie in the file. Any bytes will do. */
const void *object_variable(const void *image, size_t n, const char *name, size_t *size);

/* Functions of an opened library: the pointers at these places of api, NULL for what it lacks; returns the first symbol
 * that it lacks, or NULL. */
typedef struct { size_t at; const char *symbol; } LibSymbol;
const char *lib_symbols(void *lib, int n, const LibSymbol *table, void *api);

/* ---- instructions (isa.c) ---- */
#define ISA_NOTE "nestsmith_isa"
char *isa_note(Arena *a); /* C text to stand behind a program */
/* Those of the list that this processor does not have, separated by ", "; false: none. A name that is not known counts. */
bool isa_missing(const char *list, char *out, size_t n);
/* The widest architecture that all processors of a kind have and this one, too: "x86-64-v3"; "generic" elsewhere. */
const char *isa_portable(void);
#endif
