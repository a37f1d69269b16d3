//! Text from servers, images and signatures, made harmless for terminals and logs.

use std::fmt::{self, Write};

/// Writes what it is given, with every character that a terminal acts on, or that makes text appear in
/// another order, as `\u{…}`. Lines and tabs stay.
pub struct Printable<T>(pub T);

impl<T: fmt::Display> fmt::Display for Printable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Filter(f), "{}", self.0)
    }
}

struct Filter<W>(W);

impl<W: Write> Write for Filter<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some((at, acts)) = rest.char_indices().find(|(_, letter)| acts_on_terminals(*letter)) {
            self.0.write_str(&rest[..at])?;
            write!(self.0, "{}", acts.escape_unicode())?;
            rest = &rest[at + acts.len_utf8()..];
        }
        self.0.write_str(rest)
    }
}

/// Control characters of ASCII and of ISO 6429 (C1), and what overrides the direction of text: Unicode, UAX
/// 9; U+2028 and U+2029 begin a new line where nothing did.
fn acts_on_terminals(letter: char) -> bool {
    match letter {
        '\n' | '\t' => false,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        letter => letter.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_acts_on_is_shown_and_the_rest_stays() {
        for (text, shown) in [
            ("date:\x1b]0;PWNED\x07\x1b[2J", "date:\\u{1b}]0;PWNED\\u{7}\\u{1b}[2J"),
            ("a\rb\x7f\u{9b}31m\u{85}", "a\\u{d}b\\u{7f}\\u{9b}31m\\u{85}"),
            ("\u{202e}txt.exe\u{2066}\u{200f}", "\\u{202e}txt.exe\\u{2066}\\u{200f}"),
            ("zwei\nZeilen\tund „ä€🦀“…", "zwei\nZeilen\tund „ä€🦀“…"),
            ("", ""),
        ] {
            assert_eq!(Printable(text).to_string(), shown);
        }
    }
}
