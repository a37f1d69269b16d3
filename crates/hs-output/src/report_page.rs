//! The built page of `headstart report` and of the live page: where it lies, and how data goes into it.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use ct_codecs::{Base64, Encoder as _};
use flate2::Compression;
use flate2::write::ZlibEncoder;

/// Where the data goes in the template.
const MARKER: &str = r#"<script id="data" type="application/json">null</script>"#;
/// Names a template that lies elsewhere.
const VARIABLE: &str = "HEADSTART_REPORT_UI";
/// What builds it.
pub const HOW_TO_BUILD: &str = "`make ui` in the source of headstart builds it (it needs nodejs and npm)";

/// The page, without data.
#[derive(Clone, Debug)]
pub struct Template {
    before: String,
    after: String,
}

impl Template {
    /// Reads the page at `named`, or where it is installed or built.
    ///
    /// # Errors
    /// When there is none, or it has no place for data. `without_it` says what works nevertheless.
    pub fn read(named: Option<&Path>, without_it: &str) -> anyhow::Result<Self> {
        let file = find(named, without_it)?;
        let text = std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        let Some((before, after)) = text.split_once(MARKER) else {
            bail!("{} is no template of the report page: it has no place for the data", file.display());
        };
        Ok(Self { before: before.to_owned(), after: after.to_owned() })
    }

    /// The page with this data, a JSON text.
    #[must_use]
    pub fn with(&self, json: &str) -> String {
        format!("{}{}{}", self.before, script(json), self.after)
    }

    /// The same page, which may also ask the server that it comes from.
    #[must_use]
    pub fn that_asks_its_server(mut self) -> Self {
        self.before =
            self.before.replacen("default-src 'none';", "default-src 'none'; connect-src 'self';", 1);
        self
    }
}

/// No text of the data can end the element: each `<` is written as an escape, which JSON reads as the same.
fn script(json: &str) -> String {
    MARKER.replace("null", &json.replace('<', "\\u003c"))
}

fn find(named: Option<&Path>, without_it: &str) -> anyhow::Result<PathBuf> {
    if let Some(named) = named.map(Path::to_owned).or_else(|| std::env::var_os(VARIABLE).map(PathBuf::from)) {
        return Ok(named);
    }
    match built().context("find this program")? {
        Some(file) => Ok(file),
        None => bail!("the report page is not built: {HOW_TO_BUILD}. {without_it}"),
    }
}

/// The page that is installed with this program or built beside it.
///
/// # Errors
/// When the system does not say where this program lies.
pub fn built() -> std::io::Result<Option<PathBuf>> {
    crate::installed::find("share/headstart/report.html", "report-ui/dist/report.html")
}

/// Bytes as the page reads long lists: deflated (zlib), base64.
#[must_use]
pub fn packed(bytes: &[u8]) -> String {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    let deflated = encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory takes it all");
    Base64::encode_to_string(deflated).expect("base64 of what is in memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_ends_the_element() {
        let hostile = r#"{"command":"</script><script>alert(1)</script><!--"}"#;
        let text = script(hostile);
        let json = text
            .strip_prefix(r#"<script id="data" type="application/json">"#)
            .and_then(|rest| rest.strip_suffix("</script>"))
            .expect("the element is whole");
        assert!(!json.contains('<'), "{json}");
        let read: serde_json::Value = serde_json::from_str(json).expect("it is JSON");
        assert_eq!(read["command"], "</script><script>alert(1)</script><!--");
    }
}
