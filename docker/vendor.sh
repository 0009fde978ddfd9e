#!/usr/bin/env bash
# Fetches the wheels of requirements.txt for the image's Python, so that a build needs no network.
#
# usage: docker/vendor.sh [FOLDER [ARCHITECTURE]]
#   FOLDER         default docker/wheels, where the Dockerfile finds them
#   ARCHITECTURE   as the engine calls it: amd64, arm64, x86_64, aarch64; default this machine's
# PYTHON names the Python whose pip is used (default python3); its version does not matter.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$here/wheels}
case ${2:-$(uname -m)} in
  amd64 | x86_64) machine=x86_64 ;;
  arm64 | aarch64) machine=aarch64 ;;
  *)
    echo "docker/vendor.sh: no wheels are known for ${2:-$(uname -m)}: amd64 or arm64 is wanted" >&2
    exit 2
    ;;
esac

# pip takes a platform by its exact name: all that Debian 12's C library (2.36) can run, newest first.
platforms=()
for minor in $(seq 36 -1 17); do platforms+=(--platform "manylinux_2_${minor}_$machine"); done
platforms+=(--platform "manylinux2014_$machine")

mkdir -p "$folder"
rm -f "$folder"/*.whl # with two versions of one package nobody knows which is installed
"${PYTHON:-python3}" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
  --python-version 3.11 --implementation cp --abi cp311 --abi abi3 --abi none "${platforms[@]}" \
  --dest "$folder" --requirement "$here/requirements.txt"
