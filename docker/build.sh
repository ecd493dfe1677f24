#!/usr/bin/env bash
# Builds an image without a container engine, as root, with buildah and a base made by debootstrap:
#   docker/build.sh WORK [Dockerfile|Dockerfile.torch] [buildah's further options, such as --build-arg TORCH=torch==2.13.0]
# WORK keeps the base (about a minute to make) and the images. Prints the image's name.
#   SUITE    Debian's release for the base; MIRROR where debootstrap takes it from (its own default)
#   PIP_*    settings of pip in this environment hold inside too; nothing of them stays in the image
set -euo pipefail

work=$(mkdir -p "$1" && cd "$1" && pwd)
file=${2:-Dockerfile}
shift $(( $# < 2 ? $# : 2 ))
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
suite=${SUITE:-bookworm}
name=parallelism-planner
[ "$file" = Dockerfile ] || name=parallelism-planner-${file#Dockerfile.}
store=(--root "$work/store" --runroot "$work/run" --storage-driver vfs)

if ! buildah "${store[@]}" inspect --type image planner-base >/dev/null 2>&1; then
  rm -rf "$work/base"
  # shellcheck disable=SC2086 - an empty MIRROR is no argument
  debootstrap --variant=minbase --include=python3,python3-venv "$suite" "$work/base" ${MIRROR:-} >&2
  container=$(buildah "${store[@]}" from --pull-never scratch)
  buildah "${store[@]}" add --quiet "$container" "$work/base" / >&2
  buildah "${store[@]}" commit --quiet "$container" planner-base >&2
  buildah "${store[@]}" rm "$container" >/dev/null
  rm -rf "$work/base"
fi

# pip's settings go in as a file that is mounted while it builds; a folder of wheels gets a place of its own.
mounts=(--volume "$work/pip.conf:/etc/pip.conf:ro")
links=${PIP_FIND_LINKS:-}
if [ -d "$links" ]; then
  mounts+=(--volume "$links:/pip-links:ro")
  links=/pip-links
fi
if [ -e "${PIP_CERT:-}" ]; then
  mounts+=(--volume "$PIP_CERT:$PIP_CERT:ro")
fi
{
  echo "[global]"
  [ -z "${PIP_CERT:-}" ] || echo "cert = $PIP_CERT"
  [ -z "$links" ] || echo "find-links = $links"
  [ -z "${PIP_INDEX_URL:-}" ] || echo "index-url = $PIP_INDEX_URL"
  echo "disable-pip-version-check = true"
} > "$work/pip.conf"

buildah "${store[@]}" bud --isolation chroot --network host --pull-never \
  --ignorefile "$source/.dockerignore" --build-arg BASE=localhost/planner-base "${mounts[@]}" "$@" \
  --file "$source/docker/$file" --tag "$name" "$source" >&2
echo "localhost/$name"
