//! GPUs by NVML. No driver is "no GPU", never an error.

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use rudder_messages::report::GpuLoad;
use rudder_topology::Bytes;
use std::ffi::OsStr;

/// The machine's GPUs, if any.
#[derive(Debug)]
pub struct Gpus {
    nvml: Option<Nvml>,
    /// Why there is none.
    absent: Option<String>,
}

impl Gpus {
    /// Loads NVML; `library` names another file than the driver's own.
    #[must_use]
    pub fn open(library: Option<&OsStr>) -> Self {
        let mut builder = Nvml::builder();
        if let Some(library) = library {
            builder.lib_path(library);
        }
        match builder.init() {
            Ok(nvml) => Gpus { nvml: Some(nvml), absent: None },
            Err(error) => Gpus { nvml: None, absent: Some(error.to_string()) },
        }
    }

    /// For a log line: how many GPUs, or why none.
    #[must_use]
    pub fn summary(&self) -> String {
        match (&self.nvml, &self.absent) {
            (Some(nvml), _) => match nvml.device_count() {
                Ok(count) => format!("{count} GPU(s)"),
                Err(error) => format!("no GPU ({error})"),
            },
            (None, reason) => format!("no GPU ({})", reason.as_deref().unwrap_or("not looked for")),
        }
    }

    /// The mean use of those that answer; `None` where none does.
    #[must_use]
    pub fn mean_use(&self) -> Option<f32> {
        let all = self.measure();
        (!all.is_empty()).then(|| all.iter().map(|gpu| gpu.utilisation).sum::<f32>() / all.len() as f32)
    }

    /// Every GPU that answers.
    #[must_use]
    pub fn measure(&self) -> Vec<GpuLoad> {
        let Some(nvml) = &self.nvml else { return Vec::new() };
        let count = nvml.device_count().unwrap_or(0);
        (0..count).filter_map(|index| device(nvml, index).ok()).collect()
    }
}

fn device(nvml: &Nvml, index: u32) -> Result<GpuLoad, NvmlError> {
    let device = nvml.device_by_index(index)?;
    let utilisation = device.utilization_rates()?.gpu as f32 / 100.0;
    let memory = device.memory_info()?;
    Ok(GpuLoad { index, utilisation, memory_used: Bytes(memory.used), memory_total: Bytes(memory.total) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_library_is_no_gpu() {
        let gpus = Gpus::open(Some(OsStr::new("/nonexistent/libnvidia-ml.so")));
        assert!(gpus.measure().is_empty() && gpus.mean_use().is_none());
        assert!(gpus.summary().starts_with("no GPU ("), "{}", gpus.summary());
    }

    /// Compiled by the C compiler that the build needs anyway.
    #[test]
    fn gpus_that_answer_are_measured_and_others_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let library = directory.path().join("libnvidia-ml.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/observer/fake_nvml.c");
        let mut compiler = std::process::Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source);
        assert!(compiler.status().unwrap().success());
        let gpus = Gpus::open(Some(library.as_os_str()));
        assert_eq!(gpus.summary(), "2 GPU(s)");
        let expected =
            GpuLoad { index: 0, utilisation: 0.85, memory_used: Bytes(600), memory_total: Bytes(1000) };
        assert_eq!((gpus.measure(), gpus.mean_use()), (vec![expected], Some(0.85)));
    }
}
