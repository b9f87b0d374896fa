//! The one Python dictionary that a header holds.

use super::{DIMENSIONS_MAX, NpyError};

/// The dictionary's three values.
pub(super) struct Literal {
    pub descr: String,
    pub fortran_order: bool,
    pub shape: Vec<u64>,
}

pub(super) fn parse(text: &[u8]) -> Result<Literal, NpyError> {
    let mut reader = Reader { text, at: 0 };
    let (mut descr, mut fortran_order, mut shape) = (None, None, None);
    reader.expect(b'{', "`{`")?;
    while !reader.take(b'}') {
        let at = reader.at;
        let key = reader.string()?;
        reader.expect(b':', "`:`")?;
        let twice = match key.as_str() {
            "descr" => descr.replace(reader.descr()?).is_some(),
            "fortran_order" => fortran_order.replace(reader.boolean()?).is_some(),
            "shape" => shape.replace(reader.shape()?).is_some(),
            _ => true,
        };
        if twice {
            return Err(NpyError::Syntax { at, expected: "`descr`, `fortran_order` and `shape`, once each" });
        }
        if !reader.take(b',') {
            reader.expect(b'}', "`,` or `}`")?;
            break;
        }
    }
    reader.skip_space();
    if reader.at < text.len() {
        return Err(reader.error("nothing but spaces"));
    }
    match (descr, fortran_order, shape) {
        (Some(descr), Some(fortran_order), Some(shape)) => Ok(Literal { descr, fortran_order, shape }),
        _ => Err(reader.error("`descr`, `fortran_order` and `shape`, once each")),
    }
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn error(&self, expected: &'static str) -> NpyError {
        NpyError::Syntax { at: self.at, expected }
    }

    fn peek(&mut self) -> Option<u8> {
        self.skip_space();
        self.text.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        let spaces = self.text[self.at..].iter().take_while(|b| b.is_ascii_whitespace()).count();
        self.at += spaces;
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8, expected: &'static str) -> Result<(), NpyError> {
        if self.take(byte) { Ok(()) } else { Err(self.error(expected)) }
    }

    fn string(&mut self) -> Result<String, NpyError> {
        let quote = self.peek().filter(|b| matches!(b, b'\'' | b'"'));
        let quote = quote.ok_or_else(|| self.error("a string"))?;
        let start = self.at + 1;
        let length = self.text[start..].iter().position(|&b| b == quote || b == b'\\');
        let end = start + length.ok_or_else(|| self.error("the end of the string"))?;
        let text = std::str::from_utf8(&self.text[start..end]).ok();
        match text.filter(|_| self.text[end] == quote) {
            Some(text) => {
                self.at = end + 1;
                Ok(text.to_owned())
            }
            None => Err(self.error("a plain string")),
        }
    }

    fn descr(&mut self) -> Result<String, NpyError> {
        match self.peek() {
            Some(b'[' | b'(') => Err(NpyError::Structured),
            _ => self.string(),
        }
    }

    fn boolean(&mut self) -> Result<bool, NpyError> {
        self.skip_space();
        for (word, value) in [(b"True".as_slice(), true), (b"False", false)] {
            if self.text[self.at..].starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.error("`True` or `False`"))
    }

    fn shape(&mut self) -> Result<Vec<u64>, NpyError> {
        self.expect(b'(', "`(`")?;
        let mut shape = Vec::new();
        while !self.take(b')') {
            if shape.len() > DIMENSIONS_MAX {
                return Err(NpyError::Dimensions(shape.len()));
            }
            shape.push(self.number()?);
            if !self.take(b',') {
                self.expect(b')', "`,` or `)`")?;
                break;
            }
        }
        Ok(shape)
    }

    fn number(&mut self) -> Result<u64, NpyError> {
        self.skip_space();
        let digits = self.text[self.at..].iter().take_while(|b| b.is_ascii_digit()).count();
        let text = std::str::from_utf8(&self.text[self.at..self.at + digits]).unwrap_or_default();
        let number = text.parse().map_err(|_| self.error("a count below 2^64"))?;
        self.at += digits;
        // Python 2 wrote long integers with an L.
        if self.text.get(self.at) == Some(&b'L') {
            self.at += 1;
        }
        Ok(number)
    }
}
