"""A made-up C project: 300 files in twenty parts, 400 headers that include each other, a make that knows who includes what.

As in a kernel, most of what a compilation reads is headers, and one header of a part concerns a fifth of the files.
"""
import os
import random

PARTS = 20
FILES_PER_PART = 15
HEADERS_PER_PART = 20
FUNCTIONS_PER_FILE = 12
# The header that is touched; every file of every fifth part includes it.
TOUCHED = "include/part0/h0.h"

MAKEFILE = """SOURCES := $(sort $(wildcard part*/*.c))
OBJECTS := $(SOURCES:.c=.o)
CFLAGS := -O1 -Iinclude -MMD -MP

program: $(OBJECTS)
\t$(CC) -o $@ $^

-include $(OBJECTS:.o=.d)
"""


def write(folder):
    """Writes the project into a new folder."""
    draw = random.Random(300)
    for part in range(PARTS):
        os.makedirs(f"{folder}/include/part{part}")
        os.makedirs(f"{folder}/part{part}")
        for number in range(HEADERS_PER_PART):
            write_text(f"{folder}/include/part{part}/h{number}.h", header(draw, part, number))
    for part in range(PARTS):
        for number in range(FILES_PER_PART):
            write_text(f"{folder}/part{part}/f{number}.c", source(draw, part, number))
    write_text(f"{folder}/Makefile", MAKEFILE)


def write_text(path, text):
    with open(path, "w") as file:
        file.write(text)


def header(draw, part, number):
    name = f"p{part}_h{number}"
    # Only those of earlier parts and numbers, so that no two include each other; never the one that is touched.
    earlier = [(p, n) for p in range(part + 1) for n in range(HEADERS_PER_PART) if (0, 0) < (p, n) < (part, number)]
    included = draw.sample(earlier, min(3, len(earlier)))
    lines = [f"#ifndef {name}", f"#define {name}"]
    lines += [f'#include "part{p}/h{n}.h"' for p, n in sorted(included)]
    for field in range(draw.randrange(20, 60)):
        lines.append(f"/* What entry {field} of {name} is for is told where it is used; it counts from zero. */")
        lines.append(f"#define {name}_entry_{field} {draw.randrange(1000)}")
        lines.append(f"struct {name}_s{field} {{ int first[{draw.randrange(1, 9)}]; struct {name}_s{field} *next; }};")
    lines.append(f"static inline int {name}_sum(int a) {{ return a * {draw.randrange(2, 99)} + {name}_entry_0; }}")
    return "\n".join(lines) + "\n#endif\n"


def source(draw, part, number):
    headers = draw.sample([(p, n) for p in range(PARTS) for n in range(HEADERS_PER_PART) if (p, n) != (0, 0)], 12)
    if part % 5 == 0:
        headers.append((0, 0))
    headers.sort()
    lines = ["#include <stdio.h>", "#include <stdlib.h>", "#include <string.h>"]
    lines += [f'#include "part{p}/h{n}.h"' for p, n in headers]
    for function in range(FUNCTIONS_PER_FILE):
        p, n = draw.choice(headers)
        lines.append(f"int part{part}_f{number}_{function}(int a)\n{{\n\tint sum = p{p}_h{n}_sum(a);")
        for step in range(6):
            lines.append(f"\tif (sum % {draw.randrange(2, 30)} == {step})\n\t\tsum += a * {draw.randrange(100)};")
        lines.append('\tif (sum == 7)\n\t\tprintf("%d\\n", sum);\n\treturn sum;\n}')
    if (part, number) == (0, 0):
        lines.append("int main(void)\n{\n\treturn part0_f0_0(1) & 0;\n}")
    return "\n".join(lines) + "\n"
