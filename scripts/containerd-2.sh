#!/bin/sh
# Builds containerd 2, CRI's client, a kubelet and Docker, which Debian 12 does not have or has too old, for
# tests of `headstart snapshotter`.
#
#   scripts/containerd-2.sh DIR     programs come into DIR/bin; what is there is not built again
#
# Needs Go 1.26 or newer and its module proxy. Takes 25 minutes on one core. nerdctl is no module there:
# its test takes one that is on PATH.
set -eu

CONTAINERD=v2.3.5
CRI_TOOLS=v1.34.0
KUBERNETES=v1.34.4
MOBY=v2.0.0-beta.24
DOCKER=v29.9.3+incompatible

mkdir -p "$1/bin"
cd "$1"
export CGO_ENABLED=0 GOFLAGS='-p=1 -buildvcs=false'

# stage VERSION: modules that lie in the repository of Kubernetes have versions of their own on the proxy.
stage() {
    file=$(go mod download -json "k8s.io/kubernetes@$1" | sed -n 's/.*"GoMod": "\(.*\)",/\1/p')
    for staged in $(sed -n 's#^[[:space:]]*\(k8s.io/[a-z-]*\) => ./staging/.*#\1#p' "$file"); do
        go mod edit -replace "$staged=$staged@v0.${1#v1.}"
    done
}

# Docker's client has no go.mod: it is built by what the daemon's asks for, and one module that this lacks.
client() {
    go get "github.com/moby/moby/v2@$MOBY" \
        github.com/tonistiigi/go-rosetta@v0.0.0-20220804170347-3f4430f2d346
}

# build MODULE VERSION PROGRAM...: each module is built by what its own go.mod asks for.
build() {
    module=$1 version=$2
    shift 2
    name=$(basename "${module%/v2}")
    mkdir -p "$name"
    for program; do
        [ -x "bin/$program" ] && [ "$(cat "bin/$program.version" 2>/dev/null)" = "$version" ] && continue
        (
            cd "$name"
            [ -e go.mod ] || go mod init headstart.invalid/tools
            language=
            case $module in
            k8s.io/kubernetes) stage "$version" ;;
            github.com/docker/cli)
                client
                language=-gcflags=$module/...=-lang=go1.26
                ;;
            esac
            go get "$module/cmd/$program@$version"
            go build $language -o "../bin/$program" "$module/cmd/$program"
        )
        echo "$version" >"bin/$program.version"
    done
}

build github.com/containerd/containerd/v2 "$CONTAINERD" containerd ctr containerd-shim-runc-v2
build sigs.k8s.io/cri-tools "$CRI_TOOLS" crictl
build k8s.io/kubernetes "$KUBERNETES" kubelet
build github.com/moby/moby/v2 "$MOBY" dockerd
build github.com/docker/cli "$DOCKER" docker
