#!/bin/sh
# As people write it themselves: it leads for a second when it can make the key, and tries again.
# Usage: put_if_absent.sh ETCDCTL ENDPOINT KEY
etcdctl=$1 key=$3
export ETCDCTL_API=3 ETCDCTL_ENDPOINTS=$2

lease=$("$etcdctl" lease grant 60 | cut -d' ' -f2)
trap '"$etcdctl" lease revoke "$lease" >/dev/null' EXIT
trap exit TERM

put_if_absent() {
  printf 'create("%s") = "0"\n\nput --lease=%s %s script\n\n\n' "$key" "$lease" "$key" |
    "$etcdctl" txn | grep -q SUCCESS
}

while :; do
  if put_if_absent; then
    echo leads
    sleep 1
    "$etcdctl" del "$key" >/dev/null
  fi
  sleep 0.05
done
