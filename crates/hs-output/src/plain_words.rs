//! Messages of libraries without what only their authors need.

/// What libraries put before a reason, and says nothing more.
const NOISE: [&str; 4] = [
    "client error (Connect): ",
    "client error (SendRequest): ",
    "tcp connect error: ",
    "error sending request for url: ",
];

/// `text` without the names of a library's layers and the numbers of errors, whose meaning stands before
/// them.
#[must_use]
pub fn plain(text: &str) -> String {
    let mut text = NOISE.iter().fold(text.to_owned(), |text, noise| text.replace(noise, ""));
    while let Some((from, to)) = error_number(&text) {
        text.replace_range(from..to, "");
    }
    text
}

/// Where ` (os error 2)` stands.
fn error_number(text: &str) -> Option<(usize, usize)> {
    const BEFORE: &str = " (os error ";
    let from = text.find(BEFORE)?;
    let number = &text[from + BEFORE.len()..];
    let digits = number.bytes().take_while(u8::is_ascii_digit).count();
    let is_one = digits > 0 && number[digits..].starts_with(')');
    is_one.then_some((from, from + BEFORE.len() + digits + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_noise_goes() {
        assert_eq!(
            plain("a: No such file or directory (os error 2); b (os error 13)"),
            "a: No such file or directory; b"
        );
        assert_eq!(
            plain(
                "no connection: client error (Connect): tcp connect error: Connection refused (os error 111)"
            ),
            "no connection: Connection refused"
        );
        for same in ["", "a (os error x)", "a (os error ", "a (os error 2"] {
            assert_eq!(plain(same), same);
        }
    }
}
