#!/bin/bash
# Starts Debian's sshd in the lab's node `server`, for the login `ana` at `store.example`:
#
#   host.sh SETTINGS HOME PROGRAMS ADDRESS
#
# Creates the keys and settings of both sshd and the client's ssh in the directory SETTINGS. Runs as
# the ordinary user who runs the lab.
set -euo pipefail
settings=$1 home=$2 programs=$(cd "$3" && pwd) address=$4 port=2222
PATH="$PATH:/usr/sbin:/sbin"
mkdir "$settings"
for name in host user; do ssh-keygen -q -t ed25519 -N '' -C '' -f "$settings/$name"; done
echo "[$address]:$port $(cat "$settings/host.pub")" >"$settings/known_hosts"
cat >"$settings/config" <<END
Host store.example
HostName $address
Port $port
User ana
IdentityFile $settings/user
IdentitiesOnly yes
UserKnownHostsFile $settings/known_hosts
GlobalKnownHostsFile none
StrictHostKeyChecking yes
BatchMode yes
END
cat >"$settings/sshd_config" <<END
Port $port
ListenAddress 0.0.0.0
HostKey $settings/host
AuthorizedKeysFile $settings/user.pub
StrictModes no
UsePAM no
UseDNS no
PidFile none
PasswordAuthentication no
KbdInteractiveAuthentication no
PrintMotd no
SetEnv PATH=$programs:/usr/bin:/bin
END
printf 'root:x:0:0:root:/run:/bin/sh\nana:x:1000:1000:ana:/run/ana:/bin/sh\n' >"$settings/passwd"
printf 'root:x:0:\nana:x:1000:\n' >"$settings/group"
# Creates the login as root of its namespaces, then continues as an ordinary user.
prepare='set -eu
settings=$1 home=$2; shift 2
mount --bind "$settings/passwd" /etc/passwd
mount --bind "$settings/group" /etc/group
mkdir "$settings/run"
mount -t tmpfs -o mode=755 ssh "$settings/run"
mkdir "$settings/run/ana"
mount --bind "$home" "$settings/run/ana"
mount --rbind "$settings/run" /run
cd /run
export HOME=/run/ana
exec unshare --user --map-user=1000 --map-group=1000 -- "$@"'
exec "$WANBED" exec server -- unshare --mount --uts --pid --fork --kill-child -- \
    sh -c "$prepare" sh "$settings" "$home" "$(command -v sshd)" -D -e -f "$settings/sshd_config"
