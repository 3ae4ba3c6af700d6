#!/bin/bash
# tests/systemd/boot.sh - boots a REAL systemd (system manager + logind + dbus + journald + user@UID manager)
# in private mount/pid/net/uts/ipc/cgroup namespaces on a throw-away overlay of this machine's own root.
# Nothing on the host is changed: / is an overlay with a tmpfs upper, /proc/sys and /sys are read-only,
# the cgroup root is a leaf of our own, CAP_SYS_BOOT/TIME/MODULE/RAWIO are dropped.
#   boot.sh up   DIR          boot; DIR gets pid, timings, console log
#   boot.sh root DIR CMD...   run CMD as root inside
#   boot.sh user DIR CMD...   run CMD as the test user with XDG_RUNTIME_DIR (systemctl --user works)
#   boot.sh down DIR          orderly shutdown (falls back to killing the namespace), removes the cgroup
# Needs: root, systemd, dbus, dbus-user-session, libpam-systemd (logind), util-linux >= 2.38.  No network.
set -u
ME=$(readlink -f "$0")
TUSER=${SCV_TEST_USER:-scvtest}; TUID=${SCV_TEST_UID:-4242}
cmd=${1:-}; DIR=${2:-${TMPDIR:-/tmp}/scv-systemd.$$}
now(){ date +%s.%N; }
die(){ echo "boot.sh: $*" >&2; exit 1; }

cg2(){ # where is cgroup2 mounted (pure unified or hybrid)?
  awk '$3=="cgroup2"{print $2; exit}' /proc/self/mounts; }

inner(){ # in the new namespaces, still on the host root
  set -e
  D=$1
  # --- guard: never run systemd in the host's root cgroup or pid namespace (it would adopt every process there)
  [ "$$" = 1 ] || die "not PID 1 of a new pid namespace"
  grep -qx '0::/' /proc/self/cgroup || die "no private cgroup namespace: $(tail -1 /proc/self/cgroup)"
  mount --make-rprivate /
  mkdir -p "$D/mnt"; mount -t tmpfs -o mode=755,size=2g scv "$D/mnt"
  mkdir -p "$D"/mnt/{upper,work,root}
  R=$D/mnt/root
  mount -t overlay -o "lowerdir=/,upperdir=$D/mnt/upper,workdir=$D/mnt/work" scv-root "$R"
  mount -t tmpfs -o mode=755,size=256m tmpfs "$R/run"
  mount -t tmpfs -o mode=1777,size=1g tmpfs "$R/tmp"
  mount -t proc proc "$R/proc"
  for p in sys irq bus sysrq-trigger kcore; do [ -e "$R/proc/$p" ] && { mount --bind "$R/proc/$p" "$R/proc/$p" && mount -o remount,bind,ro "$R/proc/$p"; } || true; done
  mount -t sysfs -o ro sysfs "$R/sys"
  mount -t tmpfs -o mode=755 cgtmp "$R/sys/fs/cgroup"; mount -t cgroup2 cgroup2 "$R/sys/fs/cgroup"
  # the cgroup2 view must start at our own leaf and hold only us
  n=$(grep -c . "$R/sys/fs/cgroup/cgroup.procs") ; [ "$n" -le 3 ] || die "cgroup root is shared ($n processes)"
  mount -t tmpfs -o mode=755,size=4m tmpfs "$R/dev"
  for x in "null 1 3" "zero 1 5" "full 1 7" "random 1 8" "urandom 1 9" "tty 5 0"; do set -- $x; mknod -m 666 "$R/dev/$1" c $2 $3; done
  mkdir -m 755 "$R/dev/pts" "$R/dev/shm" "$R/dev/mqueue"
  mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$R/dev/pts"; ln -s pts/ptmx "$R/dev/ptmx"
  mount -t tmpfs -o mode=1777 shm "$R/dev/shm"
  ln -s /proc/self/fd "$R/dev/fd"; ln -s fd/0 "$R/dev/stdin"; ln -s fd/1 "$R/dev/stdout"; ln -s fd/2 "$R/dev/stderr"
  # extra read-only or read-write binds:  SCV_BIND="<build dir>:/opt/scv /x:/y:rw"
  for b in ${SCV_BIND:-}; do IFS=: read -r s t m <<<"$b"; mkdir -p "$R$t"; mount --rbind "$s" "$R$t"; [ "${m:-ro}" = rw ] || mount -o remount,bind,ro "$R$t"; done
  # --- make the copy small and quiet: only what a user session needs
  printf '%s\n' "$TUSER:x:$TUID:$TUID:scv test:/home/$TUSER:/bin/bash" >>"$R/etc/passwd"
  printf '%s\n' "$TUSER:x:$TUID:" >>"$R/etc/group"; printf '%s\n' "$TUSER:*:19000:0:99999:7:::" >>"$R/etc/shadow"
  install -d -o $TUID -g $TUID "$R/home/$TUSER" "$R/home/$TUSER/.config/systemd/user"
  [ -s "$R/etc/machine-id" ] || echo 0123456789abcdef0123456789abcdef >"$R/etc/machine-id"
  rm -rf "$R/var/log/journal"; mkdir -p "$R/var/log/journal" "$R/var/lib/systemd/linger"
  : >"$R/var/lib/systemd/linger/$TUSER"      # = loginctl enable-linger, before the boot
  : >"$R/etc/fstab"
  U=$R/etc/systemd/system; mkdir -p "$U"
  for u in systemd-udevd.service systemd-udev-trigger.service systemd-networkd.service systemd-resolved.service systemd-timesyncd.service \
     systemd-modules-load.service systemd-sysctl.service systemd-binfmt.service proc-sys-fs-binfmt_misc.automount proc-sys-fs-binfmt_misc.mount \
     dev-hugepages.mount dev-mqueue.mount sys-kernel-debug.mount sys-kernel-tracing.mount sys-fs-fuse-connections.mount sys-kernel-config.mount \
     systemd-remount-fs.service systemd-random-seed.service systemd-firstboot.service systemd-hwdb-update.service ldconfig.service \
     systemd-journal-catalog-update.service systemd-update-utmp.service systemd-update-utmp-runlevel.service systemd-ask-password-console.path \
     systemd-ask-password-wall.path getty.target timers.target apt-daily.timer systemd-tmpfiles-clean.timer keyboard-setup.service console-setup.service \
     systemd-machine-id-commit.service docker.service containerd.service ssh.service cron.service networking.service apparmor.service rsyslog.service; do
     ln -sf /dev/null "$U/$u"; done
  cat >"$U/scv-ci.target" <<E
[Unit]
Description=scv CI
Requires=basic.target
Wants=dbus.service systemd-logind.service systemd-user-sessions.service
After=basic.target dbus.service systemd-logind.service
AllowIsolate=yes
E
  mkdir -p "$R/etc/systemd/journald.conf.d" "$R/etc/systemd/system.conf.d"
  printf '[Journal]\nStorage=persistent\nReadKMsg=no\nForwardToConsole=no\nRateLimitBurst=0\n' >"$R/etc/systemd/journald.conf.d/ci.conf"
  printf '[Manager]\nDefaultTimeoutStopSec=10s\nDefaultTimeoutStartSec=20s\nCrashReboot=no\n' >"$R/etc/systemd/system.conf.d/ci.conf"
  hostname scv-ci; ip link set lo up 2>/dev/null || true
  cd "$R"; mkdir -p oldroot; pivot_root . oldroot; cd /
  exec chroot . /bin/bash -c 'umount -l /oldroot; rmdir /oldroot; exec env -i container=scv-ci PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 TERM=dumb \
     setpriv --bounding-set=-sys_boot,-sys_time,-sys_module,-sys_rawio --inh-caps=-sys_boot,-sys_time,-sys_module,-sys_rawio \
     /lib/systemd/systemd --system --unit=scv-ci.target --log-target=journal --show-status=0' </dev/null
}

up(){
  [ "$(id -u)" = 0 ] || die "needs root"
  C2=$(cg2); [ -n "$C2" ] || die "no cgroup2 mount"
  mkdir -p "$DIR"; T0=$(now)
  # pure-v2 hosts: start next to where we are; hybrid hosts: the unified tree is empty, start at its root
  # its name is its own: a pid comes again, and a boot that was killed has left its cgroup
  CG=$(mktemp -d "$C2/scv-ci.XXXXXXXX") && chmod 755 "$CG" || die "cannot make a cgroup in $C2"; echo "$CG" >"$DIR/cgroup"
  # pty-less console; setsid so that nothing ties it to this terminal
  ( echo $BASHPID >"$CG/cgroup.procs"
    export TUSER TUID SCV_BIND=${SCV_BIND:-}
    exec setsid unshare --mount --pid --fork --cgroup --net --uts --ipc --kill-child=KILL -- "$ME" __inner "$DIR" ) >"$DIR/console.log" 2>&1 </dev/null &
  UN=$!; echo $UN >"$DIR/unshare.pid"
  for i in $(seq 100); do P=$(cat /proc/$UN/task/*/children 2>/dev/null | awk '{print $1}'); [ -n "$P" ] && break; sleep 0.02; done
  [ -n "${P:-}" ] || { cat "$DIR/console.log"; die "did not start"; }
  echo "$P" >"$DIR/pid"
  for i in $(seq 300); do
    [ -d /proc/$P ] || { cat "$DIR/console.log"; die "PID 1 died"; }
    [ -S "/proc/$P/root/run/user/$TUID/systemd/private" ] && [ -S "/proc/$P/root/run/user/$TUID/bus" ] && break; sleep 0.05; done
  [ -S "/proc/$P/root/run/user/$TUID/bus" ] || { echo "no user manager"; "$ME" root "$DIR" systemctl --no-pager status "user@$TUID" ; "$ME" root "$DIR" journalctl -b --no-pager | tail -40; "$ME" down "$DIR"; exit 1; }
  user systemctl --user is-system-running --wait >"$DIR/user-state" 2>&1
  echo "up in $(echo "$(now) - $T0" | bc 2>/dev/null || python3 -c "print(round($(now)-$T0,2))") s: PID 1 is host pid $P, user manager $(cat "$DIR/user-state"), system $(root systemctl is-system-running 2>/dev/null)"
}
root(){ nsenter -t "$(cat "$DIR/pid")" -m -p -n -u -i -C -- env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 SYSTEMD_PAGER= "$@"; }
# the caller is put in a cgroup of its own below the namespace root so that it is never part of a unit
user(){ nsenter -t "$(cat "$DIR/pid")" -m -p -n -u -i -C -- setpriv --reuid="$TUID" --regid="$TUID" --clear-groups --inh-caps=-all \
  env -i PATH=/usr/local/bin:/usr/bin:/bin HOME=/home/$TUSER USER=$TUSER LOGNAME=$TUSER LANG=C.UTF-8 SYSTEMD_PAGER= XDG_RUNTIME_DIR=/run/user/$TUID DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/$TUID/bus "$@"; }
down(){
  P=$(cat "$DIR/pid" 2>/dev/null); UN=$(cat "$DIR/unshare.pid" 2>/dev/null); CG=$(cat "$DIR/cgroup" 2>/dev/null); T0=$(now)
  if [ -n "$P" ] && [ -d "/proc/$P" ]; then
    root systemctl exit 0 >/dev/null 2>&1
    for i in $(seq 200); do [ -d "/proc/$P" ] || break; sleep 0.05; done
    how=orderly; [ -d "/proc/$P" ] && { how=killed; kill -KILL "$P"; sleep 0.2; }
  fi
  [ -n "$CG" ] && [ -e "$CG/cgroup.kill" ] && echo 1 >"$CG/cgroup.kill" 2>/dev/null
  for i in $(seq 20); do [ -n "$CG" ] && [ -d "$CG" ] || break; find "$CG" -depth -type d -exec rmdir {} \; 2>/dev/null; sleep 0.05; done
  echo "down (${how:-was not running}) in $(python3 -c "print(round($(now)-$T0,2))") s, cgroup $( [ -d "$CG" ] && echo LEFT || echo removed )"
}
case $cmd in
  __inner) inner "$2";;
  up) up;;
  root) shift 2; root "$@";;
  user) shift 2; user "$@";;
  down) down;;
  *) die "usage: boot.sh up|root|user|down DIR [CMD...]";;
esac
