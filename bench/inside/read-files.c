/* read-files ROOT LIST: reads ahead a list of (offset, bytes, path) in ROOT, one after the other. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int main(int count, char **words) {
    long long offset, bytes;
    char path[4096];
    FILE *list = count == 3 ? fopen(words[2], "r") : NULL;
    if (!list || chdir(words[1]))
        return 1;
    while (fscanf(list, "%lld %lld %4095[^\n]", &offset, &bytes, path) == 3) {
        int file = open(path, O_RDONLY | O_NOATIME);
        readahead(file, offset, bytes);
        close(file);
    }
}
