/* codegen: printers for C, CUDA C and OpenCL C over one shared expression printer. Spec 07 §7.5. How the text is called and what
 * its manifest says: program/program.h.
 *
 * Shuffles: the kids of IN_SHFL and IN_SHFL_DOWN are (value, lane or distance, width), or the same after a mask.
 * 16-bit floats are 16 bits in memory and float32 in registers, on every target.
 */
#ifndef NS_CODEGEN_H
#define NS_CODEGEN_H
#include "ir/program.h"
char *gen_source(const Program *p);   /* text for p->f.target; in the context's arena */
char *gen_manifest(const Program *p); /* JSON; in the context's arena */
#endif
