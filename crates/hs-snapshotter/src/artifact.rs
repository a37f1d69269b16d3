//! Which image is mounted for a layer: what labels and the table say.

use hs_remote::Sha256;

use crate::table::Table;

/// What is mounted for a layer, and the layers that it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// What is mounted: a file's absolute path, or an address.
    pub image: String,
    /// Whether the layer is the topmost one.
    pub is_top: bool,
}

/// The image that the table has for the layer with this chain ID. One of which it is the topmost layer comes
/// before one of which it is another.
///
/// # Errors
/// When the table cannot be read.
pub fn in_table(table: &Table, chain_id: &str) -> anyhow::Result<Option<Artifact>> {
    let entries = table.entries()?;
    let with_layer = |is_top: bool| {
        let has = |chain: &[String]| match chain.split_last() {
            Some((top, below)) => if is_top { top == chain_id } else { below.iter().any(|id| id == chain_id) },
            None => false,
        };
        let found = entries.iter().rev().find(|entry| has(&entry.chain));
        found.map(|entry| Artifact { image: entry.artifact.clone(), is_top })
    };
    Ok(with_layer(true).or_else(|| with_layer(false)))
}

/// The chain ID of each layer, from the digests of the unpacked layers: image specification 1.1, "Layer ChainID".
///
/// # Errors
/// The digest that is none.
pub fn chain_of(diff_ids: &[String]) -> Result<Vec<String>, String> {
    let mut chain: Vec<String> = Vec::new();
    for diff_id in diff_ids {
        if !is_chain_id(diff_id) {
            return Err(format!("{diff_id:?} is no SHA-256 digest"));
        }
        chain.push(match chain.last() {
            None => diff_id.clone(),
            Some(below) => Sha256::of(format!("{below} {diff_id}").as_bytes()).to_string(),
        });
    }
    Ok(chain)
}

/// Whether this is `sha256:` and 64 digits in lower case.
#[must_use]
pub fn is_chain_id(text: &str) -> bool {
    text.parse::<Sha256>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Entry;

    fn digest(digit: char) -> String {
        format!("sha256:{}", String::from(digit).repeat(64))
    }

    #[test]
    fn chains_are_those_of_the_specification() {
        // By `printf 'sha256:00… sha256:11…' | sha256sum`.
        let chain = chain_of(&[digest('0'), digest('1')]).expect("two");
        assert_eq!(chain[0], digest('0'));
        assert_eq!(chain[1], CHAIN);
        assert!(chain_of(&["sha256:0".to_owned()]).is_err() && chain_of(&["md5:0".to_owned()]).is_err());
        assert!(!is_chain_id(&digest('A')));
    }

    const CHAIN: &str = "sha256:f94b891e05f6e37c90d87edfd5bb98a02d618a437c35f3a94b3b00e48e894631";

    #[test]
    fn the_topmost_layer_of_one_image_may_be_a_layer_of_another() {
        let place = tempfile::tempdir().expect("a folder");
        let table = Table::of(place.path());
        let put = |reference: &str, chain: &[char]| {
            let chain = chain.iter().map(|digit| digest(*digit)).collect();
            let entry = Entry { reference: reference.to_owned(), artifact: format!("/{reference}.hsi"), chain };
            table.put(entry).expect("put");
        };
        put("base", &['0', '1']);
        put("app", &['0', '1', '2']);
        let found = |digit| in_table(&table, &digest(digit)).expect("read");
        let artifact = |image: &str, is_top| Some(Artifact { image: image.to_owned(), is_top });
        assert_eq!(found('1'), artifact("/base.hsi", true));
        assert_eq!(found('2'), artifact("/app.hsi", true));
        assert_eq!(found('0'), artifact("/app.hsi", false));
        assert_eq!(found('3'), None);
    }
}
