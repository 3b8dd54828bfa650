//! A trace that is being written: a new file, which goes again if it does not come to its end.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use dcd_sim::trace::Request;
use dcd_sim::trace::write_csv::CsvWriter;
#[cfg(feature = "parquet")]
use dcd_sim::trace::write_parquet::ParquetWriter;

use crate::error::CommandError;

/// A trace that is being written.
pub struct TraceFile {
    path: PathBuf,
    /// None when it has come to its end.
    writer: Option<Writer>,
}

enum Writer {
    Csv(CsvWriter<BufWriter<File>>),
    #[cfg(feature = "parquet")]
    Parquet(Box<ParquetWriter<BufWriter<File>>>),
}

impl TraceFile {
    /// Makes the file: Parquet if its name ends so, else CSV.
    pub fn create(path: &Path) -> Result<TraceFile, CommandError> {
        let is_parquet = path.extension().is_some_and(|extension| extension == "parquet");
        if is_parquet && !cfg!(feature = "parquet") {
            return Err(CommandError::NoParquet { path: path.to_owned() });
        }
        // What is there is not overwritten: it may be the only copy of a recording.
        let file = File::create_new(path).map_err(CommandError::file("create", path))?;
        let out = BufWriter::new(file);
        // From here on the file goes when this does.
        let mut trace = TraceFile { path: path.to_owned(), writer: None };
        #[cfg(feature = "parquet")]
        if is_parquet {
            let writer = ParquetWriter::new(out).map_err(|error| trace.parquet(&error))?;
            trace.writer = Some(Writer::Parquet(Box::new(writer)));
            return Ok(trace);
        }
        let writer = CsvWriter::new(out).map_err(CommandError::file("write", path))?;
        trace.writer = Some(Writer::Csv(writer));
        Ok(trace)
    }

    /// Writes a request.
    pub fn write(&mut self, request: &Request) -> Result<(), CommandError> {
        match self.writer.as_mut().expect("it has not come to its end") {
            Writer::Csv(writer) => {
                writer.write(request).map_err(CommandError::file("write", &self.path))
            }
            #[cfg(feature = "parquet")]
            Writer::Parquet(writer) => {
                let written = writer.write(request);
                written.map_err(|error| self.parquet(&error))
            }
        }
    }

    /// Its end.
    pub fn finish(mut self) -> Result<(), CommandError> {
        let error = CommandError::file("write", &self.path);
        let finished = match self.writer.take().expect("it has not come to its end") {
            Writer::Csv(writer) => writer.finish().map_err(error),
            #[cfg(feature = "parquet")]
            Writer::Parquet(writer) => {
                let out = writer.finish().map_err(|problem| self.parquet(&problem));
                let flushed =
                    |out: BufWriter<File>| out.into_inner().map_err(|full| full.into_error());
                out.and_then(|out| flushed(out).map(BufWriter::new).map_err(error))
            }
        };
        finished?;
        // Nothing to be removed any more.
        self.path.clear();
        Ok(())
    }

    #[cfg(feature = "parquet")]
    fn parquet(&self, error: &dcd_parquet::Error) -> CommandError {
        CommandError::WriteParquet { path: self.path.clone(), problem: error.to_string() }
    }
}

impl Drop for TraceFile {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            // Half a trace would look like a whole one.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
