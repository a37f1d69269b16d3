//! What every medium and disk has of a system: its kernel, an initramfs and its image.

use std::fs::File;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use hs_build::BuildOptions;
use hs_build::source::{Source, SourceOptions};
use hs_output::show::Bar;
use hs_start::image::ImageSource;
use hs_start::open::open_image;
use hs_start::progress;
use hs_units::ByteRange;
use rustix::fs::{Access, access};

use crate::initrd::{self, InitrdKind};
use crate::system::{System, SystemPlace, kernel_path};

/// The names of kernel and initramfs.
pub(crate) const KERNEL: &str = "vmlinuz";
/// See [`KERNEL`].
pub(crate) const INITRD: &str = "initrd.img";

/// Where a system comes from.
#[derive(Clone, Debug)]
pub struct SystemSpec {
    /// A directory with a root file system, or an image.
    pub source: ImageSource,
    /// Kernel and initramfs, when they are not those of the system.
    pub kernel: Option<(PathBuf, PathBuf)>,
    /// The program headstart-live, when it is not the installed one.
    pub live: Option<PathBuf>,
    /// Which initramfs is made.
    pub initrd_kind: InitrdKind,
}

impl SystemSpec {
    /// The directory, when it is one.
    pub(crate) fn directory(&self) -> Option<&Path> {
        self.source.file().filter(|path| path.is_dir())
    }

    /// Looks whether [`place_kernel`](Self::place_kernel) would find a kernel, before anything is removed for
    /// it. `work` is a path that the system must not cover.
    pub(crate) fn check_kernel(&self, work: &Path) -> anyhow::Result<()> {
        let is_readable =
            |path: &Path| access(path, Access::READ_OK).with_context(|| format!("open {}", path.display()));
        if let Some((kernel, initrd)) = &self.kernel {
            return is_readable(kernel).and_then(|()| is_readable(initrd));
        }
        let live = self.live_program()?;
        is_readable(&live)?;
        self.open_system(vec![work.to_owned(), live])?.kernel_version().map(drop)
    }

    fn live_program(&self) -> anyhow::Result<PathBuf> {
        self.live.clone().map_or_else(initrd::live_program, Ok)
    }

    /// Mounts the system where nothing of `needed` is covered.
    fn open_system(&self, mut needed: Vec<PathBuf>) -> anyhow::Result<System> {
        let place = match self.directory() {
            Some(path) => SystemPlace::Directory(
                path.canonicalize().with_context(|| format!("open {}", path.display()))?,
            ),
            None => SystemPlace::Image(Box::new(self.source.clone())),
        };
        needed.extend(hs_start::remote::places_here(&self.source));
        System::open(&place, &needed)
    }

    /// Puts kernel and initramfs into a folder. Gives the version of a kernel that is the system's. `work` is
    /// a folder that the system must not cover.
    pub(crate) fn place_kernel(
        &self,
        folder: &Path,
        work: &Path,
        bar: &Bar,
    ) -> anyhow::Result<Option<String>> {
        let copy = |from: &Path, name: &str| {
            std::fs::copy(from, folder.join(name)).with_context(|| format!("copy {}", from.display()))
        };
        if let Some((kernel, initrd)) = &self.kernel {
            copy(kernel, KERNEL)?;
            copy(initrd, INITRD)?;
            return Ok(None);
        }
        let live = self.live_program()?;
        bar.spin("making the initramfs");
        let system = self.open_system(vec![work.to_owned(), folder.to_owned(), live.clone()])?;
        let version = system.kernel_version()?;
        initrd::make(&system, &version, &live, &self.initrd_kind, &folder.join(INITRD))?;
        system.copy_out(&kernel_path(&version), &folder.join(KERNEL))?;
        Ok(Some(version))
    }

    /// Builds the image from a directory, or copies it, from a file or an address.
    pub(crate) fn place_image(&self, image: &Path, free_bytes: u64, bar: &Bar) -> anyhow::Result<()> {
        if let Some(root) = self.directory() {
            let options =
                SourceOptions { free_bytes, output: Some(image.to_owned()), ..SourceOptions::default() };
            let source = Source::open(root, &options, &|step| progress::of_source(bar, step))?;
            hs_build::build(&source, image, &BuildOptions::default(), &|step| progress::of_image(bar, step))?;
            return Ok(());
        }
        // Opening it tells a file that is none.
        let opened = open_image(&self.source)?;
        if opened.superblock().base.is_some() {
            bail!(
                "{}: some of its blocks lie on another disk, which the medium would not have",
                self.source.display()
            );
        }
        bar.spin("copying the image");
        if let Some(file) = self.source.file() {
            return std::fs::copy(file, image).map(drop).with_context(|| format!("copy {}", file.display()));
        }
        let written = || format!("write {}", image.display());
        let mut file = File::create(image).with_context(written)?;
        let mut failed = None;
        opened.store().stream(ByteRange::new(0, opened.store().len()), &mut |piece| match file
            .write_all(piece)
        {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        })?;
        failed.map_or(Ok(()), Err).with_context(written)
    }
}
