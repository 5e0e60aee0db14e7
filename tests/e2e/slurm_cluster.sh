#!/bin/bash
# slurm_cluster.sh FOLDER COMMAND...   runs COMMAND on node1 of a Slurm cluster of two nodes, which ends with it.
# To be started in fresh namespaces of everything (unshare --pid --fork --mount-proc --net --uts --mount --ipc). Both nodes
# are this machine, under names, addresses, /dev/shm and boot ids of their own.
set -eu
folder=$1
shift
ip link set lo up
# getaddrinfo() gives nothing to a machine that has loopback addresses alone.
for number in 1 2; do ip addr add "10.77.0.$number/32" dev lo; done
printf '127.0.0.1 localhost\n10.77.0.1 node1\n10.77.0.2 node2\n' >"$folder/hosts"
mount --bind "$folder/hosts" /etc/hosts
mount -t tmpfs tmpfs /run
hostname node1

mkdir -p "$folder"/{state,log,munge}
chmod 700 "$folder/munge"
(umask 077 && head -c 1024 /dev/urandom >"$folder/munge/key")
munged --force --foreground --socket="$folder/munge.sock" --key-file="$folder/munge/key" --pid-file="$folder/munge/pid" \
  --log-file="$folder/munge/log" --seed-file="$folder/munge/seed" --num-threads=2 2>"$folder/log/munged" &

cat >"$folder/slurm.conf" <<END
ClusterName=recipe
SlurmctldHost=node1(10.77.0.1)
SlurmctldPort=16817
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge.sock
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool.%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.%n.pid
SlurmctldLogFile=$folder/log/slurmctld
SlurmdLogFile=$folder/log/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/linux
SlurmdTimeout=10
NodeName=node1 NodeAddr=10.77.0.1 Port=16821 CPUs=2 RealMemory=1000
NodeName=node2 NodeAddr=10.77.0.2 Port=16822 CPUs=2 RealMemory=1000
PartitionName=all Nodes=ALL Default=YES MaxTime=10 State=UP OverSubscribe=YES
END
export SLURM_CONF=$folder/slurm.conf
slurmctld -D 2>/dev/null &
for node in node1 node2; do
  # shellcheck disable=SC2016
  unshare --uts --mount bash -c '
    hostname "$1"
    mount -t tmpfs tmpfs /dev/shm
    cat /proc/sys/kernel/random/uuid >"$0/boot.$1"
    mount --bind "$0/boot.$1" /proc/sys/kernel/random/boot_id
    exec slurmd -D -N "$1" 2>/dev/null' "$folder" "$node" &
done
for _ in $(seq 300); do
  [[ $(sinfo -h -t idle -o %D 2>/dev/null) == 2 ]] && break
  sleep 0.1
done
"$@"
