#!/bin/sh
# Builds SOCI, which bench/containers.py measures beside `headstart snapshotter`.
#
#   scripts/soci.sh DIR     programs come into DIR/bin
#
# Needs Go 1.26 or newer, its module proxy, a C compiler and zlib's headers.
set -eu

# Its programs are a module of their own, without versions; this one belongs to SOCI.
SOCI=v0.16.1
PROGRAMS=v0.0.0-20260930233240-61147fe7c929
MODULE=github.com/awslabs/soci-snapshotter

mkdir -p "$1/bin" "$1/soci"
cd "$1/soci"
export GOFLAGS='-p=1 -buildvcs=false'
[ -e go.mod ] || go mod init headstart.invalid/tools
go mod edit -replace "$MODULE@v0.0.0-local=$MODULE@$SOCI"
go get "$MODULE/cmd/soci@$PROGRAMS" "$MODULE/cmd/soci-snapshotter-grpc@$PROGRAMS"
go build -o ../bin/ "$MODULE/cmd/soci" "$MODULE/cmd/soci-snapshotter-grpc"
