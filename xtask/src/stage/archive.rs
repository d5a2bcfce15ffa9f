//! A tar archive, compressed by xz over a window that is wider than a program: test programs share most of
//! what is in them, which then takes its room once.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use anyhow::{Context, Result};
use liblzma::stream::{Check, Filters, LzmaOptions, Stream};
use liblzma::write::XzEncoder;
use tar::{Builder, Header};

/// Little effort finds what programs share.
const PRESET: u32 = 2;
/// How far back the compressor looks: past the last programs.
const WINDOW: u32 = 64 << 20;

pub struct Archive {
    tar: Builder<XzEncoder<BufWriter<File>>>,
}

impl Archive {
    pub fn create(path: &Path) -> Result<Archive> {
        let file = File::create(path).with_context(|| format!("{} cannot be created", path.display()))?;
        let mut options = LzmaOptions::new_preset(PRESET).context("the compressor has no such preset")?;
        options.dict_size(WINDOW);
        let stream = Stream::new_stream_encoder(Filters::new().lzma2(&options), Check::Crc64)
            .context("the compressor does not start")?;
        Ok(Archive { tar: Builder::new(XzEncoder::new_stream(BufWriter::new(file), stream)) })
    }

    /// Adds a file under a name; the same bytes give the same archive, whenever it is made.
    pub fn add(&mut self, name: &str, bytes: &[u8], executable: bool) -> Result<()> {
        let mut header = Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(if executable { 0o755 } else { 0o644 });
        self.tar.append_data(&mut header, name, bytes).with_context(|| format!("{name} cannot be archived"))
    }

    /// Adds a file from the disk; gives its size.
    pub fn add_file(&mut self, name: &str, path: &Path, executable: bool) -> Result<u64> {
        let bytes = std::fs::read(path).with_context(|| format!("{} cannot be read", path.display()))?;
        self.add(name, &bytes, executable)?;
        Ok(bytes.len() as u64)
    }

    /// Adds all files of a folder, which may not exist, below a name; gives their size.
    pub fn add_folder(&mut self, name: &str, folder: &Path) -> Result<u64> {
        if !folder.is_dir() {
            return Ok(0);
        }
        let listed = || format!("{} cannot be listed", folder.display());
        let mut paths = std::fs::read_dir(folder)
            .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>())
            .with_context(listed)?;
        paths.sort();
        let mut bytes = 0;
        for path in paths {
            let name = format!("{name}/{}", path.file_name().unwrap_or_default().to_string_lossy());
            bytes += match path.is_dir() {
                true => self.add_folder(&name, &path)?,
                false => self.add_file(&name, &path, false)?,
            };
        }
        Ok(bytes)
    }

    pub fn finish(self) -> Result<()> {
        let encoder = self.tar.into_inner().context("the archive cannot be written")?;
        let file = encoder.finish().context("the archive cannot be compressed")?;
        file.into_inner()
            .map(drop)
            .map_err(|error| error.into_error())
            .context("the archive cannot be written")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use liblzma::read::XzDecoder;
    use std::io::Read;

    #[test]
    fn files_come_out_as_they_went_in_and_alike_ones_cost_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("data");
        std::fs::create_dir_all(folder.join("sub")).unwrap();
        std::fs::write(folder.join("sub/b"), "345").unwrap();
        std::fs::write(folder.join("a"), "12").unwrap();
        // Not compressible by itself.
        let mut state = 1u32;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .take(1 << 20)
        .collect();
        let path = dir.path().join("a.tar.xz");
        let mut archive = Archive::create(&path).unwrap();
        archive.add("bin/one", &noise, true).unwrap();
        archive.add("bin/two", &noise, true).unwrap();
        assert_eq!(archive.add_folder("tests/data", &folder).unwrap(), 5);
        assert_eq!(archive.add_folder("none", &dir.path().join("none")).unwrap(), 0);
        archive.finish().unwrap();
        assert!(std::fs::metadata(&path).unwrap().len() < (1 << 20) + (1 << 16));

        let mut unpacked = tar::Archive::new(XzDecoder::new(File::open(&path).unwrap()));
        let files: Vec<(String, u32, Vec<u8>)> = unpacked
            .entries()
            .unwrap()
            .map(|entry| {
                let mut entry = entry.unwrap();
                let mut bytes = Vec::new();
                entry.read_to_end(&mut bytes).unwrap();
                let name = entry.path().unwrap().to_string_lossy().into_owned();
                (name, entry.header().mode().unwrap(), bytes)
            })
            .collect();
        let file = |name: &str, mode, bytes: &[u8]| (name.to_owned(), mode, bytes.to_vec());
        let want = [
            file("bin/one", 0o755, &noise),
            file("bin/two", 0o755, &noise),
            file("tests/data/a", 0o644, b"12"),
            file("tests/data/sub/b", 0o644, b"345"),
        ];
        assert!(files == want, "{:?}", files.iter().map(|file| &file.0).collect::<Vec<_>>());
    }
}
