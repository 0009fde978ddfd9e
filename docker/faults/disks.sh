#!/bin/sh
# Makes disks for brokers (small ext4 file systems in files, on loop devices), and damages the files on them.
#
# usage: disks.sh make FOLDER BYTES UID:GID NAME...   FOLDER/NAME.img each, sparse; prints their devices, in order
#        disks.sh check DEVICE        repair a file system that the kernel found broken and that is not mounted
#        disks.sh fill | free         fill the disk mounted at /disk; remove the fill again
#        disks.sh empty               delete everything on it
#        disks.sh edit [remove FILE | size FILE BYTES | byte FILE POSITION OCTAL]...     change files on it
# make and check need SYS_ADMIN and the machine's /dev.
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
    remove_lost_and_found "$folder/$name.img"
    device=$(losetup -f --show "$folder/$name.img")
    made="$made $device"
  done
  trap - EXIT
  echo "${made# }"
}

remove_lost_and_found() { # a log directory has nothing but logs, and its owner can read all of it
  debugfs -w -R 'rmdir lost+found' "$1" 2>/dev/null
}

check() {
  e2fsck -p "$1" || [ $? = 1 ] # 1: it has corrected something
  remove_lost_and_found "$1"
}

room() {
  df -B1 --output=avail /disk | tail -n 1
}

fill() { # with blocks after the end of a file (-n): a copy of the disk does not copy them
  most=$(($(room) - 1048576)) # their metadata takes room too
  : >"$fill-1"
  [ "$most" -le 0 ] || fallocate -n -l "$most" "$fill-1"
  : >"$fill-2"
  # Repeated: a running broker frees a block now and then, when it replaces a file.
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    dd if=/dev/zero of="$fill-2" bs=4k oflag=append conv=notrunc,fsync 2>/dev/null || : # until it fails: the disk is full
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
