//! Lines of text files, gzipped or not, each at most a stated number of bytes long.

use crate::error::{LineProblem, Place, ReadError};
use crate::read::open_file;
use flate2::read::MultiGzDecoder;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// A text file read line by line.
pub(crate) struct Lines {
    file: PathBuf,
    reader: Box<dyn BufRead>,
    buffer: Vec<u8>,
    number: u64,
    line_bytes_max: usize,
}

const BUFFER_BYTES: usize = 1 << 17;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

impl Lines {
    /// Opens a file; whether it is gzipped is seen from its first bytes.
    pub(crate) fn open(file: &Path, line_bytes_max: usize) -> Result<Lines, ReadError> {
        let failed = || ReadError::io(&Place::file(file));
        let mut opened = open_file(file, &Place::file(file))?;
        let mut magic = Vec::new();
        opened.by_ref().take(2).read_to_end(&mut magic).map_err(failed())?;
        opened.seek(SeekFrom::Start(0)).map_err(failed())?;
        let reader: Box<dyn BufRead> = if magic == GZIP_MAGIC {
            Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(BufReader::new(opened))))
        } else {
            Box::new(BufReader::with_capacity(BUFFER_BYTES, opened))
        };
        Ok(Lines { file: file.to_owned(), reader, buffer: Vec::new(), number: 0, line_bytes_max })
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Number of the line last read, counted from 1.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The next line without its end, or `None` at the end of the file.
    pub(crate) fn next(&mut self) -> Result<Option<&str>, ReadError> {
        self.buffer.clear();
        let limit = self.line_bytes_max as u64 + 2;
        let got = self.reader.by_ref().take(limit).read_until(b'\n', &mut self.buffer).map_err(|source| {
            let text = format!("after line {}: {source}", self.number);
            let source = std::io::Error::new(source.kind(), text);
            ReadError::Io { place: Place::file(&self.file), source }
        })?;
        if got == 0 {
            return Ok(None);
        }
        self.number += 1;
        while matches!(self.buffer.last(), Some(b'\n' | b'\r')) {
            self.buffer.pop();
        }
        if self.buffer.len() > self.line_bytes_max {
            return Err(self.refuse(LineProblem::TooLong(self.line_bytes_max)));
        }
        match std::str::from_utf8(&self.buffer) {
            Ok(line) => Ok(Some(line)),
            Err(_) => Err(ReadError::line(&self.file, self.number, LineProblem::Encoding)),
        }
    }

    /// The error for something wrong with the line last read.
    pub(crate) fn refuse(&self, problem: LineProblem) -> ReadError {
        ReadError::line(&self.file, self.number, problem)
    }
}

/// The fields of a line: between commas if it has any, else between blanks and tabs.
pub(crate) fn fields(line: &str) -> impl Iterator<Item = &str> {
    let comma = line.contains(',');
    let by_comma = comma.then(|| line.split(',').map(str::trim));
    let by_blank = (!comma).then(|| line.split_ascii_whitespace());
    by_comma.into_iter().flatten().chain(by_blank.into_iter().flatten())
}

/// A field as it may stand in a message: cut where it is long.
pub(crate) fn shown(field: &str) -> String {
    field.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    fn lines(bytes: &[u8], max: usize) -> Result<Vec<String>, ReadError> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        let mut lines = Lines::open(file.path(), max)?;
        let mut read = Vec::new();
        while let Some(line) = lines.next()? {
            read.push(line.to_owned());
        }
        Ok(read)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn lines_end_in_any_way() {
        assert_eq!(lines(b"a\r\nb\n\nc", 10).unwrap(), ["a", "b", "", "c"]);
        assert_eq!(lines(&gzip(b"a\nb"), 10).unwrap(), ["a", "b"]);
        assert!(lines(b"", 10).unwrap().is_empty());
    }

    #[test]
    fn a_long_line_is_refused_before_it_is_held() {
        let bomb = gzip(&vec![b'1'; 1 << 22]);
        assert!(bomb.len() < 1 << 16);
        let error = lines(&bomb, 100).unwrap_err();
        assert!(
            matches!(error, ReadError::Line { line: 1, problem: LineProblem::TooLong(100), .. }),
            "{error}"
        );
        assert_eq!(lines(&[b'x'; 100], 100).unwrap()[0].len(), 100);
    }

    #[test]
    fn a_cut_gzip_file_says_where() {
        let whole = gzip("1,2\n".repeat(10_000).as_bytes());
        let error = lines(&whole[..whole.len() - 9], 100).unwrap_err();
        assert!(error.to_string().contains("after line"), "{error}");
        assert!(lines(&[0x1f, 0x8b, 1, 2, 3], 10).is_err());
    }

    #[test]
    fn fields_are_split_as_written() {
        assert_eq!(fields("1, 2,,3").collect::<Vec<_>>(), ["1", "2", "", "3"]);
        assert_eq!(fields(" 1\t2  3").collect::<Vec<_>>(), ["1", "2", "3"]);
        assert_eq!(fields("").count(), 0);
    }

    proptest! {
        #[test]
        fn random_bytes_are_lines_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = lines(&bytes, 50);
            let mut gz = vec![0x1f, 0x8b, 8, 0];
            gz.extend(&bytes);
            prop_assert!(lines(&gz, 50).is_err() || bytes.len() > 14);
        }
    }
}
