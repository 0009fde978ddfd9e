#!/usr/bin/env bash
# Makes VENV (default .venv) with floodmark and all it needs; says what is missing by name, installs it on Debian as root.
set -euo pipefail
cd "$(dirname "$0")/.."
venv="${VENV:-.venv}"
extra="${EXTRA:-dev}"
say() { printf '%s\n' "$*" >&2; }

debian_root() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }
apt_updated=no
install() {  # install PACKAGE: on Debian as root, else tell how and stop
  if debian_root; then
    say "installing $1 (Debian package)"
    [ "$apt_updated" = yes ] || { apt-get update -qq >&2; apt_updated=yes; }
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$1" >/dev/null
  else
    say "missing: $2"
    say "  Debian, Ubuntu:  sudo apt-get install $1"
    say "  Fedora:          sudo dnf install $3"
    say "  macOS:           brew install $4"
    exit 4
  fi
}

python="${PYTHON:-python3}"
command -v "$python" >/dev/null || install python3 "Python 3.11 or later" python3 python@3.12
"$python" - <<'P' || { say "Python 3.11 or later is needed; $("$python" --version 2>&1) found. Set PYTHON=/path/to/python3.11"; exit 4; }
import sys
sys.exit(sys.version_info < (3, 11))
P
"$python" -c 'import ensurepip, venv' 2>/dev/null || install python3-venv "Python's venv module" python3 python@3.12

java_version() {  # the major version, or 0
  local java="${JAVA_HOME:+$JAVA_HOME/bin/}java"
  command -v "$java" >/dev/null || { echo 0; return; }
  local major
  major="$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)"
  echo "${major:-0}"
}
if [ "$(java_version)" -lt 17 ]; then
  install openjdk-17-jre-headless "Java 17 or later (found: $(java_version))" java-17-openjdk-headless openjdk@17
fi

stamp="$venv/.floodmark-$extra"
if [ ! -f "$stamp" ] || [ setup.cfg -nt "$stamp" ] || [ constraints.txt -nt "$stamp" ]; then
  say "setting up $venv: the first time downloads about 450 MB of Spark; later runs are quick"
  [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
  "$venv/bin/python" -m pip install --disable-pip-version-check -c constraints.txt \
    --editable ".[$extra]" >&2
  touch "$stamp"
fi
