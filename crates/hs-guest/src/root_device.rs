//! The device that a guest mounts as its root.

/// `disk`, or its partition with this number, as Linux names it.
pub(crate) fn root_device(disk: &str, partition: Option<u32>) -> String {
    let Some(number) = partition else { return disk.to_owned() };
    let between = if disk.ends_with(|end: char| end.is_ascii_digit()) { "p" } else { "" };
    format!("{disk}{between}{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_named_as_linux_names_them() {
        assert_eq!(root_device("/dev/vda", None), "/dev/vda");
        assert_eq!(root_device("/dev/ubda", Some(15)), "/dev/ubda15");
        assert_eq!(root_device("/dev/nvme0n1", Some(2)), "/dev/nvme0n1p2");
    }
}
