/* SPDX-License-Identifier: 0BSD
 * eb_semihost.h on the build machine, by stdio.
 */
#include <stdio.h>

#include "eb_semihost.h"

static FILE *files[8];

void eb_print(const char *text)
{
    (void)fputs(text, stdout);
    (void)fflush(stdout);
}

int eb_open(const char *path, eb_open_mode mode)
{
    for (int i = 0; i < (int)(sizeof files / sizeof files[0]); ++i) {
        if (files[i] == NULL) {
            files[i] = fopen(path, mode == EB_READ ? "rb" : "wb");
            if (files[i] != NULL && mode == EB_WRITE) {
                (void)setvbuf(files[i], NULL, _IONBF, 0); /* a pipe's other end waits for every byte */
            }
            return files[i] == NULL ? -1 : i;
        }
    }
    return -1;
}

size_t eb_read(int file, void *to, size_t bytes)
{
    return fread(to, 1, bytes, files[file]);
}

size_t eb_write(int file, const void *from, size_t bytes)
{
    return fwrite(from, 1, bytes, files[file]);
}

void eb_close(int file)
{
    (void)fclose(files[file]);
    files[file] = NULL;
}
