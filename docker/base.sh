#!/usr/bin/env bash
# Makes a base image that replaces python:3.11-slim-bookworm where no registry answers: Debian's own packages and
# Python 3.11, unpacked into a folder and imported into the engine. It also contains the network and disk tools
# that the target `tools` needs, because it has no apt to install them with.
#
# usage: docker/base.sh [TAG [PACKAGE...]]       (default floodmark-base:1; PACKAGE: additional ones of Debian)
#
# It needs Debian 12 with apt's sources reachable, root, and an engine. No package is installed on this machine:
# apt only resolves and downloads, as if nothing were installed. The image trusts the certificate authorities
# that this machine trusts, so that pip works in a build as it does here: keep it local.
set -euo pipefail

tag=${1:-floodmark-base:1}
shift || true
packages="base-files base-passwd bash ca-certificates coreutils dash e2fsprogs findutils grep hostname
  iproute2 iptables libc-bin libfaketime media-types mount netbase procps python3 python3-distutils
  python3-pip-whl python3-setuptools-whl sed tzdata usr-is-merged util-linux $*"

die() {
  echo "docker/base.sh: $*" >&2
  exit 1
}

check_machine() {
  local release
  # shellcheck source=/dev/null
  release=$(. /etc/os-release 2>/dev/null && echo "${ID:-}-${VERSION_ID:-}") || true
  [ "$release" = debian-12 ] || die "the stand-in is made of Debian 12's packages, and this machine is" \
    "${release:-of an unknown kind}; load python:3.11-slim-bookworm into the engine instead (docker load)"
  [ "$(id -u)" = 0 ] || die "must run as root: the image's files are root's, byte code is made in a chroot"
  local tool
  for tool in apt-get dpkg-deb tar chroot docker python3; do
    command -v "$tool" >/dev/null || die "$tool is missing on this machine"
  done
  timeout 20 docker info >/dev/null 2>&1 || die "no container engine answers (docker info says why)"
  [ -s /etc/ssl/certs/ca-certificates.crt ] ||
    die "no certificate authorities here: apt-get install ca-certificates"
}

# Downloads the packages and their dependencies into $work/debs.
download() {
  mkdir -p "$work/debs/partial"
  : >"$work/status" # as if nothing were installed
  local apt=(apt-get -qq -y -o Acquire::Retries=3)
  if ! compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null; then
    "${apt[@]}" -o DPkg::Lock::Timeout=300 update ||
      die "apt-get update failed: are Debian's mirrors reachable?"
  fi
  local fetch=("${apt[@]}" --no-install-recommends --download-only -o Debug::NoLocking=1
    -o APT::Sandbox::User=root -o "Dir::State::status=$work/status" -o "Dir::Cache::archives=$work/debs")
  # shellcheck disable=SC2086  # one word per package
  "${fetch[@]}" install $packages >"$work/apt.log" 2>&1 || {
    # The package lists may be older than the mirrors.
    "${apt[@]}" -o DPkg::Lock::Timeout=300 update && "${fetch[@]}" install $packages >"$work/apt.log" 2>&1
  } || {
    tail -n 5 "$work/apt.log" >&2
    die "apt could not fetch the packages"
  }
}

unpack() {
  local name deb
  mkdir -p "$root"/usr/{bin,sbin,lib,lib64}
  for name in bin sbin lib lib64; do ln -s "usr/$name" "$root/$name"; done # /usr is merged in Debian 12
  for deb in "$work"/debs/*.deb; do
    dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$root" --keep-directory-symlink \
      --exclude='./usr/share/'{man,doc,doc-base,info,locale,lintian,bug,perl}'/*' \
      --exclude='./usr/lib/*/gconv/*' --exclude='./usr/lib/python3*/'{lib2to3,idlelib,pydoc_data,test}'/*'
  done
}

# Does what the packages' own scripts would do.
configure() {
  local name site=$root/usr/local/lib/python3.11/dist-packages
  cp "$root/usr/share/base-passwd/passwd.master" "$root/etc/passwd"
  cp "$root/usr/share/base-passwd/group.master" "$root/etc/group"
  for name in {iptables,ip6tables}{,-save,-restore}; do ln -sf xtables-nft-multi "$root/usr/sbin/$name"; done
  mkdir -p "$root/usr/local/bin" "$root/root" "$root/tmp" "$root/etc/ssl/certs" "$site"
  chmod 1777 "$root/tmp"
  cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
  ln -sf /etc/ssl/certs/ca-certificates.crt "$root/usr/lib/ssl/cert.pem"
  # Where the official image has them.
  ln -sf /usr/bin/python3 "$root/usr/local/bin/python3"
  ln -sf /usr/bin/python3 "$root/usr/local/bin/python"
  for name in "$root"/usr/lib/jvm/*/bin/java; do # one of those that update-alternatives would choose from
    [ ! -e "$name" ] || ln -sf "${name#"$root"}" "$root/usr/bin/java"
  done
  # pip as Debian ships it for virtual environments: a wheel.
  for name in "$root"/usr/share/python-wheels/{pip,setuptools}-*.whl; do
    python3 -m zipfile -e "$name" "$site"
  done
  rm -rf "$root/usr/share/python-wheels" "$root"/usr/lib/python3*/EXTERNALLY-MANAGED
  printf '#!/bin/sh\nexec python3 -m pip "$@"\n' >"$root/usr/local/bin/pip"
  chmod +x "$root/usr/local/bin/pip"
  ldconfig -r "$root"
  # Without byte code every start of Python would compile the library again: 0.5 s instead of 0.1 s.
  chroot "$root" /usr/bin/python3 -m compileall -q /usr/lib/python3.11 /usr/local/lib/python3.11 ||
    die "the unpacked Python does not run"
}

import() {
  tar -C "$root" --numeric-owner -c . | docker import \
    -c 'ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8' \
    -c 'ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt PIP_CERT=/etc/ssl/certs/ca-certificates.crt' \
    -c 'CMD ["python3"]' -c 'LABEL org.floodmark.image=1' - "$tag" >/dev/null
}

check_machine
work=$(mktemp -d "${TMPDIR:-/tmp}/floodmark-base.XXXXXX")
root=$work/root
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
download
unpack
configure
import
echo "$tag"
