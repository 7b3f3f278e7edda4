# ruff: noqa: E501  (C on one line reads better here)
"""The adversarial cases from 33 on, and all of them."""

from __future__ import annotations

from tests.drivers.cases import FIRST, FIXED, HEAD, PADS, PLAIN, Case

CASES = [
    *FIRST,
    Case(
        33,
        "2 into one bit",
        HEAD + "void t(int v) { r->a = v; } void u(int v) { r->a = v != 0; }",
        (("t", 2, None), ("u", 2, None)),
        ("w a=0", "w a=1"),
    ),
    Case(
        34,
        "bool of a field",
        HEAD + "int t(void) { _Bool x = r->d; return x; }",
        (("t", 1),),
        ("r d",),
        values={"d": 0x80},
    ),
    Case(
        35,
        "promotions",
        HEAD + "int t(void) { return (r->w < -1) * 10 + (r->d - 1 < 0); }",
        (("t", 11),),
        ("r w", "r d"),
    ),
    Case(
        36,
        "64 bits",
        HEAD + "int t(void) { r->big = 0x123456789ull; r->big += 0xFFFFFFFFull; return (int)(r->big >> 32); }",
        (("t", 2),),
        ("w big=23456789", "w big=123456789", "r big", "r big", "w big=123456788", "w big=223456788", "r big", "r big"),
    ),
    Case(
        37,
        "field over a register's border",
        FIXED + "void t(void) { c->mode = 1; }",
        registers="R@0: mode:30:4 en:0:1 irq:1:1 irq0:2:1 busy:3:1\nS@8: rx:0:8 key:8:8 any:16:1 cfg:17:1 start:18:1",
        error="ends at bit 33",
    ),
    Case(
        38,
        "arrays, same index",
        HEAD + "void t(int i) { r->e[i] = i; r->f[i] = i + 1; }",
        (("t", 3, None),),
        ("w e_3=3 f_3=4",),
    ),
    Case(
        39,
        "arrays, other index",
        HEAD + "void t(int i, int j) { r->e[i] = 1; r->f[j] = 2; } void u(int i) { r->e[i] = 3; i++; r->f[i] = 4; }",
        (("t", 1, 2, None), ("u", 5, None)),
        ("w e_1=1", "w f_2=2", "w e_5=3", "w f_6=4"),
    ),
    Case(
        40,
        "index with a side effect",
        PADS + "int t(int i) { io->pads[i++].z |= 1; return i; }",
        (("t", 2, 3),),
        ("r pads_2_z", "w pads_2_z=5"),
        values={"pads_2_z": 4},
    ),
    Case(
        41,
        "two pointers to one type",
        PADS + "int t(bfGroup Pad *p, bfGroup Pad *q) { int x = p->z; q->z = 5; return x * 10 + p->z; }",
        (("t", "io+0", "io+0", 25),),
        ("r pads_0_z", "w pads_0_z=5", "r pads_0_z"),
        values={"pads_0_z": 2},
    ),
    Case(
        42,
        "the pointer changes",
        PADS + "int t(int i) { bfGroup Pad *p = &io->pads[i]; p->x = 1; p = &io->pads[i + 1]; p->y = 1;"
        " p->x = 0; return i; }",
        (("t", 0, 0),),
        ("w pads_0_x=1", "w pads_1_y=1", "w pads_1_x=0"),
    ),
    Case(
        43,
        "call through a pointer",
        HEAD + "int t(void (*f)(void)) { int x = r->c; f(); return x * 10 + r->c; }",
        (("t", "&hook", 12),),
        ("r c", "r c"),
        extra="void hook(void) {}",
        sequences={"c": (1, 2)},
    ),
    Case(
        44,
        "callee uses the same field",
        HEAD + "static void inner(void) { r->c = 6; } static int pure(int v) { return v + 1; }\n"
        "int t(void) { int x = r->c; inner(); x = x * 10 + r->c; x += pure(x) * 0; return x * 10 + r->c; }",
        (("t", 166),),
        ("r c", "w c=6", "r c"),
        values={"c": 1},
    ),
    Case(
        45,
        "recursion",
        HEAD + "int t(int n) { int x = r->c; if (n) { r->c = n; t(n - 1); } return x * 10 + r->c; }",
        (("t", 1, 1),),
        ("r c", "w c=1", "r c", "r c", "r c"),
        values={"c": 0},
    ),
    Case(
        46,
        "interrupts off and on",
        HEAD + "extern void off(void), on(void); void t(void) { r->a = 1; off(); r->b = 1; on(); r->c = 1; }",
        (("t", None),),
        ("w a=1", "w b=1", "w c=1"),
        extra="void off(void) {} void on(void) {}",
    ),
    Case(
        47,
        "two stores never become a read-modify-write",
        FIXED + "void t(void) { c->rx = 1; c->key = 2; }",
        (("t", None),),
        ("w rx=1", "w key=2"),
        target="riscv-virt",
        registers="R@0: rx:8:8 key:16:8 mode:0:4\nS@4: en:0:1 irq:1:1 irq0:2:1 busy:3:1 any:16:1 cfg:17:1 start:18:1",
        overlay='bytes: true\nfields: {"C.*": {plain: true}}',
    ),
    Case(
        48,
        "barriers",
        HEAD + 'volatile int v; int t(void) { r->a = 1; __asm__ volatile("" ::: "memory"); r->b = 1; v = 1; r->c = 1;'
        " __sync_synchronize(); r->c = 2; int x = 0; __atomic_store_n(&x, 1, 5); r->c = 3; return x; }",
        (("t", 1),),
        ("w a=1", "w b=1", "w c=1", "w c=2", "w c=3"),
    ),
    Case(
        49,
        "sizeof, typeof, _Generic",
        HEAD + "int t(void) { typeof(r->data) x = 3; return sizeof r->data + sizeof(r->e) + x"
        " + _Generic(r->data, unsigned char: 100, default: 0); }",
        (("t", 112),),
        (),
    ),
    Case(
        50,
        "address of a field",
        HEAD + "extern void use(void *); void t(void) { use(&r->c); }",
        error="a bit field has no address",
    ),
    Case(
        51,
        "group copy",
        PADS + "extern void *memcpy(void *, const void *, __SIZE_TYPE__);\n"
        "void t(void) { memcpy(&io->pads[0], &io->pads[1], 4); }",
        error="registers are not memory",
    ),
    Case(
        52,
        "accesses in macros",
        HEAD + "#define SET(f, v) (r->f = (v))\n#define TWICE(x) ((x) * 10 + (x))\n"
        "int t(void) { SET(c, 5); return TWICE(r->data); }",
        (("t", 12),),
        ("w c=5", "r data", "r data"),
        sequences={"data": (1, 2)},
    ),
    Case(
        53,
        "access in a header under #if",
        '#include "shared.bf.h"\nint t(void) { return get() + 1; }',
        (("t", 4),),
        ("r d",),
        headers={
            "shared.bf.h": "#pragma once\n" + HEAD + "#if 1\nstatic inline int get(void) { return r->d; }\n#else\n"
            "static inline int get(void) { return r->nothing; }\n#endif\n"
        },
        values={"d": 3},
    ),
    Case(
        54,
        "word-only bus",
        HEAD + "int t(void) { r->d = 1; r->h = 2; r->e[3] = 4; return r->d + r->h; }",
        (("t", 3),),
        ("w d=1 h=2 e_3=4", "r d h e_3"),
    ),
    Case(
        55,
        "byte of a byte-capable bus",
        FIXED + "void t(void) { int v = 0x1FF; c->rx = v; }",
        (("t", None),),
        ("w rx=ff",),
        target="riscv-virt",
        registers="R@0: rx:8:8 key:16:8 mode:0:4\nS@4: en:0:1 irq:1:1 irq0:2:1 busy:3:1 any:16:1 cfg:17:1 start:18:1",
        overlay='bytes: true\nfields: {"C.*": {plain: true}}',
    ),
    Case(
        56,
        "switch on a field, fall-through",
        HEAD + "void t(void) { switch (r->c) { case 1: r->a = 1; /* fall */ case 2: r->b = 1; break;"
        " default: r->d = 9; } }",
        (("t", None), ("t", None), ("t", None)),
        ("r c", "w a=1", "w b=1", "r c", "w b=1", "r c", "w d=9"),
        sequences={"c": (1, 2, 3)},
    ),
    Case(
        57,
        "goto backwards",
        HEAD + "int t(void) { int n = 0; again: n = n * 10 + r->c; r->c = n; if (n < 20) goto again; return n; }",
        (("t", 33),),
        ("r c", "w c=3", "r c", "w c=1"),
        values={"c": 3},
    ),
    Case(
        58,
        "neighbour that changes by itself",
        FIXED + "void t(void) { c->en = 1; }",
        (("t", None),),
        ("r en busy", "w en=1 busy=1"),
        registers="R@0: en:0:1 busy:1:1\nS@4: irq:0:1 irq0:2:1 mode:4:4 rx:8:8 key:16:8 any:24:1 cfg:25:1 start:26:1",
        overlay=PLAIN[:-1] + ', "C.*.busy": {volatile: true}}',
        values={"busy": 1},
        warning="would be lost",
    ),
    Case(
        59,
        "banked registers",
        "bfGroup U { bit wse(dl, thr, ier) dlab; uint8 dl; uint8 thr; uint8 ier; };\nmake_device(U, u, 0x40000000);\n"
        "void t(void) { u->ier = 1; u->dlab = 1; u->dl = 3; u->dlab = 0; u->thr = 4; u->ier = 5; }",
        (("t", None),),
        ("w ier=1", "w dlab=1", "w dl=3", "w dlab=0", "w thr=4", "w ier=5"),
    ),
    Case(
        60,
        "key sequence",
        HEAD + "void t(void) { r->fifo = 0x55; r->fifo = 0xAA; r->c = 1; r->fifo = 0; }",
        (("t", None),),
        ("w fifo=55", "w fifo=aa", "w c=1", "w fifo=0"),
    ),
    Case(
        61,
        "two devices of one type",
        PADS + "static void set(bfGroup Io *p, int i) { p->pads[i].z = i; p->n = 2; }\n"
        "void t(void) { set(io, 1); set(io2, 3); }",
        (("t", None),),
        ("w pads_1_z=1", "w n=2", "w pads_3_z=3", "w n=2"),
    ),
    Case(
        62,
        "unused reads stay in optimised code",
        HEAD + "void t(void) { r->data; (void)r->count; int x = r->data; }",
        (("t", None),),
        ("r data", "r count", "r data"),
    ),
    Case(
        63,
        "flattened only if the index is constant",
        "bfGroup P { bit x; bit y; }; bfGroup D { bfGroup P c[2]; bfGroup P v[2]; };\n"
        "bfGroup Q { bit x; bit y; }; bfGroup E { bfGroup Q c[2]; };\nmake_device(D, d, 0x40000000);\nmake_device(E, e, 0x40001000);\n"
        "void t(int i) { d->c[0].x = 1; d->c[1].x = 1; d->v[i].y = 1; e->c[0].x = 1; e->c[1].y = 1; }",
        (("t", 1, None),),
        ("w c_0_x=1", "w c_1_x=1", "w v_1_y=1", "w c_0_x=1 c_1_y=1"),
    ),
    Case(
        64,
        "names of users",
        "bfGroup bit { bit bit; bit in; bit reg; uint8 class; uint8 new; uint8 rse; };\nmake_device(bit, uint8_, 0x40000000);\n"
        "int t(int reg) { int bit = reg, in = 1; uint8_->bit = bit; uint8_->in = in; uint8_->class = 3; int new = uint8_->rse; return new + uint8_->reg; }",
        (("t", 1, 6),),
        ("w bit=1 in=1 class=3", "r reg rse"),
        values={"rse": 5, "reg": 1},
    ),
]
