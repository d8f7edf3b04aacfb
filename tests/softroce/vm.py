#!/usr/bin/env python3
"""A throw-away machine with an RDMA device: Debian's kernel under qemu's software emulation, with soft-RoCE (rdma_rxe) on a dummy
network device. Needs neither KVM nor modules of this machine's kernel. Only correctness: its speed means nothing.

    vm.py [--seconds N] [--memory MiB] [--file PATH]... -- 'shell command for the guest'

The kernel's package is downloaded once (70 MB, into --cache), unpacked, never installed. Files go to the same path in the guest, with
the libraries they need. The guest is 10.77.0.1 on rxe0; the command's exit status is ours, 77 when the machine cannot be made here."""

import argparse
import ctypes
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

SKIPPED = 77  # What ctest takes for "not run".
PROGRAMS = ("qemu-system-x86_64", "busybox", "cpio", "zstd", "modprobe", "depmod", "ldd", "strip")
TOOLS = ("ip", "rdma", "chrt", "ibv_devinfo")
MODULES = ("rdma_rxe", "rdma_ucm", "ib_uverbs", "dummy", "crc32_generic")
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"

INIT = """#!/bin/sh
export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/tmp
mount -t proc p /proc; mount -t sysfs s /sys; mount -t devtmpfs d /dev; mkdir -p /dev/shm
mount -t tmpfs t /dev/shm; mount -t tmpfs t /tmp; mount -t tmpfs t /run
for module in /modules/*.ko; do insmod $module || echo "insmod $module failed"; done
ulimit -l unlimited
ip link set lo up
ip link add eth0 type dummy; ip link set eth0 mtu 4200 up; ip addr add 10.77.0.1/24 dev eth0
rdma link add rxe0 type rxe netdev eth0
mkdir -p /dev/infiniband
for class in /sys/class/infiniband_verbs/uverbs* /sys/class/misc/rdma_cm; do
  name=$(basename $class)
  [ -e $class/dev ] && [ ! -e /dev/infiniband/$name ] && mknod /dev/infiniband/$name c $(tr : ' ' < $class/dev)
done
# rxe works in ksoftirqd; a process that polls would keep it from running.
for pid in $(ps | awk '/ksoftirqd/ && !/awk/ {print $1}'); do chrt -f -p 50 $pid; done
echo "VM_READY after $(cut -d' ' -f1 /proc/uptime) s"
sh /command
echo "VM_STATUS=$?"
echo "VM_DONE after $(cut -d' ' -f1 /proc/uptime) s"
poweroff -f
"""


def find(name):
    return shutil.which(name, path=PATH)


def run(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, "PATH": PATH}, **options).stdout


def skip(why):
    print(f"softroce: skipped: {why}", file=sys.stderr)
    sys.exit(SKIPPED)


def kernel(cache):
    """The unpacked kernel package and its version."""
    depends = re.search(r"Depends: (linux-image-\S+)", run("apt-cache", "depends", "linux-image-amd64"))
    if depends is None:
        skip("apt knows no linux-image-amd64; run apt-get update")
    package = depends.group(1)
    version = package.removeprefix("linux-image-")
    folder = cache / package
    if not (folder / "boot" / f"vmlinuz-{version}").exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as temporary:
            run("apt-get", "download", package, cwd=temporary)
            archive = next(pathlib.Path(temporary).glob("*.deb"))
            run("dpkg-deb", "-x", str(archive), f"{temporary}/unpacked")
            run("depmod", "-b", f"{temporary}/unpacked", version)
            shutil.rmtree(folder, ignore_errors=True)
            pathlib.Path(temporary, "unpacked").rename(folder)
    return folder, version


class Root:
    """The guest's file system, in a folder of ours."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        for name in ("bin", "sbin", "proc", "sys", "dev", "tmp", "run", "etc", "modules", "var/tmp"):
            (self.folder / name).mkdir(parents=True)

    def write(self, path, text, mode=0o644):
        target = self.folder / path
        target.write_text(text)
        target.chmod(mode)

    def add(self, path, strip=False):
        """A file at its own path, and the libraries it is linked with."""
        target = self.folder / str(path).lstrip("/")
        if target.exists():
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        if strip:
            run("strip", "-o", str(target), str(path))
        else:
            shutil.copyfile(os.path.realpath(path), target)
        target.chmod(0o755)
        linked = subprocess.run(["ldd", str(path)], capture_output=True, text=True, check=False).stdout
        for library in re.findall(r"(/\S+) \(0x", linked):
            self.add(library)

    def add_busybox(self):
        busybox = find("busybox")
        self.add(busybox)
        for name in run(busybox, "--list").split():
            if name not in TOOLS and name != "busybox":
                (self.folder / "bin" / name).symlink_to(busybox)

    def add_ucx_and_verbs(self):
        libraries = pathlib.Path(run("gcc", "-print-multiarch").strip())
        libraries = pathlib.Path("/usr/lib") / libraries
        for module in sorted((libraries / "ucx").glob("libuct_*.so.0")):
            self.add(module)
            link = self.folder / str(libraries / "ucx").lstrip("/") / module.name.removesuffix(".0")
            link.symlink_to(module.name)
        for provider in (libraries / "libibverbs").glob("librxe-*.so"):
            self.add(provider)
        self.add("/etc/libibverbs.d/rxe.driver")

    def add_modules(self, kernel_folder, version):
        seen = []
        for module in MODULES:
            shown = run("modprobe", "-d", str(kernel_folder), "-S", version, "--show-depends", module)
            for path in re.findall(r"^insmod (\S+)", shown, re.MULTILINE):
                if path not in seen:
                    seen.append(path)
        for i, path in enumerate(seen):
            shutil.copyfile(path, self.folder / "modules" / f"{i:02}-{os.path.basename(path)}")

    def pack(self, target):
        archive = subprocess.run("find . -print0 | cpio -0 -o -H newc --quiet | zstd -q -1 -T0", shell=True, cwd=self.folder,
                                 capture_output=True, check=True).stdout
        pathlib.Path(target).write_bytes(archive)


PR_SET_PDEATHSIG = 1


def spawn(command, **options):
    """A process that ends when this one does, also by SIGKILL: nobody else knows of it."""
    parent = os.getpid()
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def die_with_parent():
        if prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0 or os.getppid() != parent:
            os._exit(127)

    return subprocess.Popen(command, preexec_fn=die_with_parent, **options)


def boot(options, kernel_folder, version, initrd):
    """Runs the machine, passing its console on; the guest command's status."""
    command = [find("qemu-system-x86_64"), "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", str(options.memory),
               "-nographic", "-no-reboot", "-nodefaults", "-serial", "stdio", "-net", "none",
               "-kernel", str(kernel_folder / "boot" / f"vmlinuz-{version}"), "-initrd", initrd,
               "-append", "console=ttyS0 no_timer_check quiet loglevel=4 panic=-1 mitigations=off"]
    status = None
    with spawn(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace") as machine:
        late = threading.Timer(options.seconds, machine.kill)
        late.start()
        try:
            for line in machine.stdout:
                line = re.sub(r"\x1b\[\??[0-9;]*[a-zA-Z]|\x1bc|\r", "", line).rstrip("\n")
                print(line, flush=True)
                if found := re.fullmatch(r"VM_STATUS=(\d+)", line):
                    status = int(found.group(1))
        finally:
            late.cancel()
            machine.kill()
    if status is None:
        print(f"softroce: the guest did not end within {options.seconds} s, or died", file=sys.stderr)
        return 1
    return status


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--memory", type=int, default=3072)
    parser.add_argument("--file", action="append", default=[])
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    parser.add_argument("--cache", type=pathlib.Path, default=pathlib.Path(cache) / "cistern-softroce")
    parser.add_argument("command")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # So that the machine's files go, too.
    missing = [name for name in PROGRAMS + TOOLS if find(name) is None]
    if missing:
        skip(f"{', '.join(missing)} not installed; deploy/install_deps.sh --with-vm installs them")
    try:
        kernel_folder, version = kernel(options.cache)
    except subprocess.CalledProcessError as error:
        skip(f"the kernel's package could not be had: {(error.stderr or '').strip()[-200:]}")
    with tempfile.TemporaryDirectory(prefix="cistern-softroce-") as temporary:
        root = Root(pathlib.Path(temporary) / "root")
        root.add_busybox()
        for tool in TOOLS:
            root.add(find(tool))
        root.add_ucx_and_verbs()
        for path in options.file:
            root.add(path, strip=path.endswith(".sh") is False and os.access(path, os.X_OK))
        root.add_modules(kernel_folder, version)
        root.write("etc/passwd", "root:x:0:0:root:/tmp:/bin/sh\nnobody:x:65534:65534:nobody:/tmp:/bin/sh\n")
        root.write("etc/hosts", "127.0.0.1 localhost\n")
        root.write("command", options.command + "\n")
        root.write("init", INIT, 0o755)
        initrd = os.path.join(temporary, "initrd")
        root.pack(initrd)
        shutil.rmtree(root.folder)
        return boot(options, kernel_folder, version, initrd)


if __name__ == "__main__":
    sys.exit(main())
