# SPDX-License-Identifier: MIT
"""A fake HIP runtime: a few lines of C that read their mask once, as the real one does.

It obeys ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES and CUDA_VISIBLE_DEVICES by the real runtimes'
rules, written down here a second time so that they can be held against Tensile.Parallel.Masks.
Its machine is made of these variables, read once as well:

    FAKE_HIP_DEVICES      "gfx90a:0000:03:00.0,gfx90a:0000:83:00.0": name and PCI address of each;
                          the UUID of device 0 is GPU-1111111111111111, of 1 GPU-2222222222222222
    FAKE_HIP_UNITS        "304,80": compute units of each; 104 where it names no more
    FAKE_HIP_CLOCK        kHz, of all; unset: the runtime does not tell
    FAKE_HIP_LOG          a file: one line "PID MASK COUNT" is appended by every process that
                          initialises the runtime
    FAKE_HIP_EMPTY_HIDES  set: an empty HIP mask hides every device, as from ROCm 5.6 on
    FAKE_HIP_UUIDS        set: HIP's mask may name devices by UUID, as from ROCm 6.3 on
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Dict, Mapping, Optional, Sequence

RUNTIME = r"""
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 64, OK = 0, INVALID = 1, NO_DEVICE = 100 };
struct device { char name[32], pci[32], uuid[32]; int units; };
static struct device visible[MOST];
static int count = 0, ready = 0;

static int machine(struct device *all) {
    char text[4096];
    const char *units = getenv("FAKE_HIP_UNITS");
    int n = 0;
    snprintf(text, sizeof text, "%s", getenv("FAKE_HIP_DEVICES") ? getenv("FAKE_HIP_DEVICES") : "");
    for (char *t = strtok(text, ","); t && n < MOST; t = strtok(NULL, ",")) {
        char *colon = strchr(t, ':');
        if (!colon) continue;
        *colon = 0;
        snprintf(all[n].name, sizeof all[n].name, "%s", t);
        snprintf(all[n].pci, sizeof all[n].pci, "%s", colon + 1);
        strcpy(all[n].uuid, "GPU-");
        memset(all[n].uuid + 4, "123456789abcdef"[n % 15], 16);
        all[n].units = units ? atoi(units) : 104;
        units = units ? strchr(units, ',') : NULL;
        if (units) units++;
        n++;
    }
    return n;
}

/* The next token of a list; 0 at its end. A comma at the very end opens none. */
static int next(const char **list, char *token, size_t size) {
    if (!**list) return 0;
    size_t length = strcspn(*list, ",");
    snprintf(token, size, "%.*s", (int)length, *list);
    *list += length + ((*list)[length] == ',');
    return 1;
}

static int rocrIndex(char *t, const struct device *all, int n) {
    while (isspace((unsigned char)*t)) t++;
    for (size_t l = strlen(t); l && isspace((unsigned char)t[l - 1]); l--) t[l - 1] = 0;
    if (toupper((unsigned char)*t) == 'G') {
        int found = -1;
        if (strlen(t) < 5 || strlen(t) > 20) return -1;
        for (int i = 0; i < n; i++)
            if (!strncasecmp(t, all[i].uuid, strlen(t))) {
                if (found >= 0) return -1;
                found = i;
            }
        return found;
    }
    char *end = t;
    long index = strtol(t, &end, 0);
    return *t && !*end && index >= 0 && index < n ? (int)index : -1;
}

static int hipIndex(const char *t, const struct device *all, int n) {
    char again[32];
    int index = atoi(t);
    if (getenv("FAKE_HIP_UUIDS") && strstr(t, "GPU-"))
        for (int i = 0; i < n; i++)
            if (strstr(all[i].uuid, t)) return i;
    snprintf(again, sizeof again, "%d", index);
    return index >= 0 && index < n && !strcmp(again, t) ? index : -1;
}

static int pick(const char *list, int rocr, const struct device *all, int n, struct device *out) {
    char token[64];
    int kept = 0, taken[MOST] = {0};
    for (int seen = 0; next(&list, token, sizeof token) && (!rocr || seen < n); seen++) {
        int index = rocr ? rocrIndex(token, all, n) : hipIndex(token, all, n);
        if (index < 0 || (rocr && taken[index])) break;
        if (taken[index]) continue;
        taken[index] = 1;
        out[kept++] = all[index];
    }
    return kept;
}

int hipInit(unsigned flags) {
    static struct device all[MOST], left[MOST];
    const char *rocr = getenv("ROCR_VISIBLE_DEVICES"), *hip = getenv("HIP_VISIBLE_DEVICES");
    const char *cuda = getenv("CUDA_VISIBLE_DEVICES"), *log = getenv("FAKE_HIP_LOG");
    const char *mask = hip && *hip ? hip : cuda && *cuda ? cuda : NULL;
    (void)flags;
    if (ready) return count ? OK : NO_DEVICE; /* never again, whatever the variables say */
    ready = 1;
    if (getenv("FAKE_HIP_EMPTY_HIDES") && hip && !*hip) mask = " ";
    int n = machine(all), m = n;
    if (rocr) m = pick(rocr, 1, all, n, left);
    else memcpy(left, all, sizeof all);
    if (mask) count = pick(mask, 0, left, m, visible);
    else { memcpy(visible, left, sizeof left); count = m; }
    if (log) {
        FILE *file = fopen(log, "a");
        if (file) {
            fprintf(file, "%d %s %d\n", (int)getpid(), hip ? hip : "(unset)", count);
            fclose(file);
        }
    }
    return count ? OK : NO_DEVICE;
}

int hipGetDeviceCount(int *n) { int status = hipInit(0); *n = count; return status; }

static int copy(char *out, int size, const char *text) {
    snprintf(out, size, "%s", text);
    return OK;
}

int hipDeviceGetName(char *name, int size, int device) {
    hipInit(0);
    return device < 0 || device >= count ? INVALID : copy(name, size, visible[device].name);
}

int hipDeviceGetPCIBusId(char *pci, int size, int device) {
    hipInit(0);
    return device < 0 || device >= count ? INVALID : copy(pci, size, visible[device].pci);
}

int hipDeviceGetAttribute(int *value, int attribute, int device) {
    hipInit(0);
    const char *clock = getenv("FAKE_HIP_CLOCK");
    if (device < 0 || device >= count) return INVALID;
    if (attribute == 63) *value = visible[device].units;
    else if (attribute == 5 && clock) *value = atoi(clock);
    else return INVALID;
    return OK;
}
"""

# A client: prints the PCI address of every device that it sees, one a line.
CLIENT = r"""
#include <stdio.h>
int hipGetDeviceCount(int *);
int hipDeviceGetPCIBusId(char *, int, int);
int main(void) {
    char pci[64];
    int n = 0;
    hipGetDeviceCount(&n);
    for (int i = 0; i < n; i++) { hipDeviceGetPCIBusId(pci, sizeof pci, i); puts(pci); }
    return 0;
}
"""


class FakeHipUnavailable(Exception):
    """There is no C compiler here; tests skip with this text as the reason."""


def buildFakeHip(folder: object) -> str:
    """Compile the runtime into a folder; the path of its libamdhip64.so.

    Raises:
        FakeHipUnavailable: there is no C compiler.
    """
    library = os.path.join(str(folder), "libamdhip64.so")
    _compile(RUNTIME, library, "-shared", "-fPIC", "-Wl,-soname,libamdhip64.so")
    return library


def buildFakeClient(folder: object) -> str:
    """Compile runtime and client into one folder; the path of the client.

    Its output is the PCI address of every device it sees, one a line.

    Raises:
        FakeHipUnavailable: there is no C compiler.
    """
    library = buildFakeHip(folder)
    client = os.path.join(str(folder), "fake_client")
    _compile(CLIENT, client, library, "-Wl,-rpath,$ORIGIN")
    return client


def fakeHipEnvironment(
    environment: Mapping[str, str],
    library: str,
    devices: Sequence[str],
    log: Optional[object] = None,
) -> Dict[str, str]:
    """An environment in which libamdhip64.so is the fake one, with these devices.

    Args:
        devices: each as "gfx90a:0000:03:00.0".
        log: where FAKE_HIP_LOG points.
    """
    changed = dict(environment)
    changed["LD_LIBRARY_PATH"] = os.path.dirname(library)
    changed["FAKE_HIP_DEVICES"] = ",".join(devices)
    if log is not None:
        changed["FAKE_HIP_LOG"] = str(log)
    return changed


def _compile(source: str, target: str, *options: str) -> None:
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        raise FakeHipUnavailable("a C compiler is needed: none of cc, gcc, clang is on the PATH")
    os.makedirs(os.path.dirname(target), exist_ok=True)
    text = target + ".c"
    with open(text, "w", encoding="utf-8") as stream:
        stream.write("#define _GNU_SOURCE\n" + source)
    command = [compiler, "-O1", "-Wall", "-o", target, text, *options]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise RuntimeError("the fake HIP runtime does not compile:\n" + done.stderr)
