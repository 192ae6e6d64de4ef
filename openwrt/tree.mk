# Variables of the packages in this repository, which is a feed of its own (docs/packaging.md). In OpenWrt's feeds, the
# packages have literals instead, which `make feed` writes.
#
# The source is MILLRACE_TREE, by default the tree that contains this file. For a release's archive:
#
#   make package/millrace/compile MILLRACE_TREE= MILLRACE_HASH=SHA256
#
# SPDX-License-Identifier: Apache-2.0

MILLRACE_HOME:=$(abspath $(dir $(lastword $(MAKEFILE_LIST)))..)
MILLRACE_TREE?=$(MILLRACE_HOME)

MILLRACE_FILES:=$(MILLRACE_HOME)/packaging/openwrt/millrace
MILLRACE_LUCI:=$(TOPDIR)/feeds/luci
MILLRACE_MAINTAINER:=$(shell sed -n 's/^maintainer = "\(.*\)"/\1/p' $(MILLRACE_HOME)/packaging/packages.toml)
MILLRACE_RUST:=$(TOPDIR)/feeds/packages/lang/rust
MILLRACE_URL:=$(shell sed -n 's/^url = "\(.*\)"/\1/p' $(MILLRACE_HOME)/packaging/packages.toml)

# The package of LuCI has no source.
ifeq ($(notdir $(CURDIR)),millrace)
ifneq ($(MILLRACE_TREE),)
# Nothing is downloaded: the tree is copied without its build output.
override PKG_SOURCE_URL:=
PKG_UNPACK=tar -C $(MILLRACE_TREE) --exclude=./target --exclude=./.git -cf - . | tar -C $(PKG_BUILD_DIR) -xf -
else ifeq ($(shell echo '$(MILLRACE_HASH)' | grep -Ex '[0-9a-f]{64}'),)
$(error MILLRACE_HASH is no SHA-256: take that of the archive from SHA256SUMS of the release, or set MILLRACE_TREE to a source tree)
endif
endif
