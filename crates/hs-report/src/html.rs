//! The page: the built template with the data in it.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::model::Report;

/// Where the data goes in the template.
const MARKER: &str = r#"<script id="data" type="application/json">null</script>"#;
/// Names a template that lies elsewhere.
const VARIABLE: &str = "HEADSTART_REPORT_UI";
/// Its name where it is built and where it is installed.
const NAME: &str = "report.html";

/// The page as one file.
pub(crate) fn page(report: &Report, ui: Option<&Path>) -> anyhow::Result<Vec<u8>> {
    let file = template(ui)?;
    let text = std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    let Some((before, after)) = text.split_once(MARKER) else {
        bail!("{} is no template of the report page: it has no place for the data", file.display());
    };
    Ok(format!("{before}{}{after}", script(report)?).into_bytes())
}

/// No text of an input can end the element: each `<` is written as an escape, which JSON reads as the same.
fn script(report: &Report) -> anyhow::Result<String> {
    let json = serde_json::to_string(report).context("a report is JSON")?.replace('<', "\\u003c");
    Ok(format!(r#"<script id="data" type="application/json">{json}</script>"#))
}

fn template(ui: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(named) = ui.map(Path::to_owned).or_else(|| std::env::var_os(VARIABLE).map(PathBuf::from)) {
        return Ok(named);
    }
    let program = std::env::current_exe().context("find this program")?;
    let candidates = candidates(&program);
    match candidates.iter().find(|file| file.is_file()) {
        Some(file) => Ok(file.clone()),
        None => bail!(
            "the report page is not built: `make ui` in the source of headstart builds it (it needs nodejs \
             and npm). --format csv, iolog, parquet and perfetto work without it"
        ),
    }
}

/// Beside an installed program; in the checkout whose target folder has the program.
fn candidates(program: &Path) -> Vec<PathBuf> {
    let installed = program.parent().and_then(Path::parent).map(|prefix| prefix.join("share/headstart"));
    let target = program.ancestors().find(|folder| folder.file_name().is_some_and(|name| name == "target"));
    let built = target.and_then(Path::parent).map(|checkout| checkout.join("report-ui/dist"));
    installed.into_iter().chain(built).map(|folder| folder.join(NAME)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page;
    use crate::read::Inputs;
    use crate::recording::Recording;

    #[test]
    fn no_text_ends_the_element() {
        let hostile = "</script><script>alert(1)</script><!--";
        let recording = Recording {
            command: Some(hostile.to_owned()),
            ..Recording::new(hostile, crate::model::InputKind::Summary)
        };
        let report = page::report(Inputs { recordings: vec![recording], ..Inputs::default() });
        let text = script(&report).expect("a report is JSON");
        let json = text
            .strip_prefix(r#"<script id="data" type="application/json">"#)
            .and_then(|rest| rest.strip_suffix("</script>"))
            .expect("the element is whole");
        assert!(!json.contains('<'), "{json}");
        let read: serde_json::Value = serde_json::from_str(json).expect("it is JSON");
        assert_eq!(read["inputs"][0]["command"], hostile);
    }

    #[test]
    fn the_template_is_beside_the_program_or_in_the_checkout() {
        let at = |program: &str| candidates(Path::new(program));
        assert_eq!(at("/usr/bin/headstart"), [Path::new("/usr/share/headstart/report.html")]);
        let built = at("/src/target/debug/deps/headstart");
        assert!(built.contains(&PathBuf::from("/src/report-ui/dist/report.html")), "{built:?}");
    }
}
