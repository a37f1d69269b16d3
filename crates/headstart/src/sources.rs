//! What `build` takes as its source: a table for the end of its help and for its man page.

/// How each is named, and what it becomes.
pub(crate) const SOURCES: &[(&str, &str)] = &[
    ("a directory", "an ext4 file system of its files"),
    ("a raw disk, a block device", "that disk, byte for byte; --as tree: its files"),
    ("qcow2, VMDK, VDI, VHD, VHDX", "the disk in it"),
    ("a tar archive, or - for standard input", "the ext4 of what it unpacks to; also of gzip, zstd, xz"),
    ("an OCI layout, a `docker save` archive", "the ext4 of its layers, and its command"),
    ("oci:DIR[:NAME]", "the same of one image of several, in a folder"),
    ("oci-archive:FILE[:NAME]", "the same, in an archive of podman save or skopeo"),
    ("docker-archive:FILE[:NAME]", "the same, in an archive of docker save"),
    ("oci://HOST/NAME[:TAG], docker://NAME", "the same, in a registry"),
];

/// The heading of the table.
const HEADING: &str = "Sources, recognised by their content and not by their names:";

/// The table for a help, with a line for each source.
pub(crate) fn table() -> String {
    let width = SOURCES.iter().map(|(source, _)| source.len()).max().unwrap_or_default();
    let lines = SOURCES.iter().map(|(source, becomes)| format!("\n  {source:width$}  {becomes}"));
    format!("{HEADING}{}", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_fits_on_a_screen_of_100_columns() {
        assert!(table().lines().all(|line| line.chars().count() <= 100), "{}", table());
    }
}
