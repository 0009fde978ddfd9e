#!/bin/sh
# Disks for brokers: small ext4 file systems in files, on loop devices; and what is done to the files on a disk.
#
# usage: disks.sh make FOLDER BYTES UID:GID NAME...   FOLDER/NAME.img each, sparse; prints their devices, in order
#        disks.sh check DEVICE        make the file system whole that the kernel found broken; not mounted
#        disks.sh fill | free         leave no room on the disk mounted at /disk; leave room again
#        disks.sh empty               take away all that is there
#        disks.sh edit [remove FILE | size FILE BYTES | byte FILE POSITION OCTAL]...     files there
# Needs, for make and check, SYS_ADMIN and the machine's /dev.
set -eu
fill=/disk/.floodmark-fill

make() {
  folder=$1 bytes=$2 owner=$3
  shift 3
  made=
  trap 'for device in $made; do losetup -d "$device"; done' EXIT
  mkdir -p "$folder"
  for name; do
    truncate -s "$bytes" "$folder/$name.img"
    mkfs.ext4 -q -F -m 0 -N 16384 -J size=16 \
      -E "root_owner=$owner,lazy_itable_init=0,lazy_journal_init=1" "$folder/$name.img"
    without_lost_and_found "$folder/$name.img"
    device=$(losetup -f --show "$folder/$name.img")
    made="$made $device"
  done
  trap - EXIT
  echo "${made# }"
}

without_lost_and_found() { # a log directory holds logs, and can all be read by its owner
  debugfs -w -R 'rmdir lost+found' "$1" 2>/dev/null
}

check() {
  e2fsck -p "$1" || [ $? = 1 ] # it has corrected something
  without_lost_and_found "$1"
}

room() {
  df -B1 --output=avail /disk | tail -n 1
}

fill() { # blocks behind the end of a file (-n): who copies the disk does not copy them
  most=$(($(room) - 1048576)) # what is told of them takes room too
  : >"$fill-1"
  [ "$most" -le 0 ] || fallocate -n -l "$most" "$fill-1"
  : >"$fill-2"
  # Again, for a broker at work gives a block back now and then: it puts a file in the place of another.
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    dd if=/dev/zero of="$fill-2" bs=4k oflag=append conv=notrunc,fsync 2>/dev/null || : # until there is no more
    sync "$fill-1" "$fill-2"
    [ "$(room)" -ge 4096 ] || return 0
  done
  echo "there is still room: $(room) bytes" >&2
  exit 1
}

edit() {
  cd /disk
  while [ $# -gt 0 ]; do
    case $1 in
      remove) rm -f -- "$2" && shift 2 ;;
      size) truncate -c -s "$3" -- "$2" && shift 3 ;;
      byte) printf '%b' "\\0$4" | dd of="$2" bs=1 seek="$3" count=1 conv=notrunc status=none && shift 4 ;;
      *) echo "no such edit: $1" >&2 && exit 2 ;;
    esac
  done
}

do=$1
shift
case $do in
  make) make "$@" ;;
  check) check "$1" ;;
  fill) fill ;;
  free) rm -f "$fill-1" "$fill-2" ;;
  empty) find /disk -mindepth 1 -delete ;;
  edit) edit "$@" ;;
  *) echo "no such act: $do" >&2 && exit 2 ;;
esac
