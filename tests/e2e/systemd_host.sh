#!/bin/bash
# systemd_host.sh NAME WHYRSS UNIT PROGRAMS   runs a unit by a systemd of its own, twice: as it is, and with a smaller limit.
# Its memory cgroups lie below NAME. It says when it has done, and waits to be killed.
# To be started in fresh namespaces (unshare --pid --fork --mount-proc --net --uts --mount --ipc), as process 1.
# systemd finds these units alone, and cgroups below a group of its own.
set -eu
name=$1
for group in /sys/fs/cgroup/*/; do
  [[ ! -e $group/cgroup.procs ]] || { mkdir "$group/$name" && echo $$ >"$group/$name/cgroup.procs"; } 2>/dev/null || true
done
export WHYRSS=$2 UNIT=$3 PROGRAMS=$4
# shellcheck disable=SC2016
exec unshare --cgroup --mount bash -c '
  set -eu
  if [[ -d /sys/fs/cgroup/memory ]]; then  # v1: mounts that begin at our own group
    kinds=$(awk "\$8 == \"cgroup\" || \$9 == \"cgroup\" {print \$5}" /proc/self/mountinfo | sed "s|.*/||")
    mount -t tmpfs tmpfs /sys/fs/cgroup
    for kind in $kinds; do
      mkdir "/sys/fs/cgroup/$kind"
      option=$kind
      [[ $kind != systemd ]] || option=none,name=systemd
      mount -t cgroup -o "$option" cgroup "/sys/fs/cgroup/$kind"
    done
  else
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
  fi
  for place in /run /usr/local/bin /opt; do mount -t tmpfs tmpfs "$place"; done
  mkdir -p /run/lock /run/units /run/upper /run/work /opt/train
  mount -t overlay -o lowerdir=/var/lib,upperdir=/run/upper,workdir=/run/work overlay /var/lib
  cp "$PROGRAMS"/*.py /opt/train
  ln -s "$WHYRSS" /usr/local/bin/whyrss
  cp "$UNIT" /run/units/train.service
  systemd-analyze verify /run/units/train.service
  for target in sysinit basic default shutdown; do
    printf "[Unit]\nDefaultDependencies=no\n" >"/run/units/$target.target"
  done
  export container=recipe SYSTEMD_UNIT_PATH=/run/units
  show() {
    systemctl start train.service 2>/dev/null || true
    systemctl show train.service -p Result -p ExecMainStatus
    whyrss report /var/lib/train/job
  }
  (
    until [[ $(systemctl is-system-running 2>/dev/null) == running ]]; do sleep 0.1; done
    show
    echo "=== a smaller limit"
    sed -i s/MemoryMax=.*/MemoryMax=40M/ /run/units/train.service
    systemctl daemon-reload
    show
    echo "=== end"
  ) &
  exec /lib/systemd/systemd --system --log-target=null --show-status=0
' </dev/null
