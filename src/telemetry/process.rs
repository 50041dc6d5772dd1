//! Metrics of the process itself, read when they are asked for.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use rustix::time::{ClockId, clock_gettime};

/// Registers `process_*` under the names that Prometheus clients agree on, and `esfleet_build_info`.
///
/// The registry must have no prefix.
pub fn register(registry: &mut Registry) {
    registry.register_collector(Box::new(ProcessCollector {
        started: SystemTime::now(),
    }));
    let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
    registry.register("esfleet_build", "The version of esfleet", build);
}

#[derive(Debug)]
struct ProcessCollector {
    started: SystemTime,
}

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        gauge(
            &mut encoder,
            "process_start_time",
            "Start of the process, in seconds since 1970",
            Some(Unit::Seconds),
            self.started
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default()
                .as_secs_f64(),
        )?;
        let cpu = ConstCounter::new(cpu_time().as_secs_f64());
        let descriptor = encoder.encode_descriptor(
            "process_cpu",
            "CPU time that the process has used",
            Some(&Unit::Seconds),
            cpu.metric_type(),
        )?;
        cpu.encode(descriptor)?;
        if let Some(bytes) = resident_bytes() {
            let help = "Resident memory of the process";
            gauge(
                &mut encoder,
                "process_resident_memory",
                help,
                Some(Unit::Bytes),
                bytes as f64,
            )?;
        }
        if let Some(open) = open_files() {
            gauge(
                &mut encoder,
                "process_open_fds",
                "Open file descriptors of the process",
                None,
                open as f64,
            )?;
        }
        Ok(())
    }
}

fn gauge(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    unit: Option<Unit>,
    value: f64,
) -> Result<(), fmt::Error> {
    let gauge = ConstGauge::new(value);
    let descriptor = encoder.encode_descriptor(name, help, unit.as_ref(), gauge.metric_type())?;
    gauge.encode(descriptor)
}

fn cpu_time() -> Duration {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(spent.tv_sec).unwrap_or_default(),
        u32::try_from(spent.tv_nsec).unwrap_or_default(),
    )
}

/// Resident memory in bytes; none where there is no `/proc`.
#[must_use]
pub fn resident_bytes() -> Option<u64> {
    resident_of(&std::fs::read_to_string("/proc/self/status").ok()?)
}

fn resident_of(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

fn open_files() -> Option<usize> {
    Some(std::fs::read_dir("/proc/self/fd").ok()?.count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_from_the_status_file() {
        assert_eq!(
            resident_of("Name:\tesfleet\nVmRSS:\t   14500 kB\nThreads:\t3\n"),
            Some(14_848_000)
        );
        assert_eq!(resident_of("Name:\tesfleet\n"), None);
    }

    #[test]
    fn the_process_is_described_under_the_customary_names() {
        let mut registry = Registry::default();
        register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let names: Vec<&str> = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.split([' ', '{']).next())
            .collect();
        assert_eq!(
            names,
            [
                "esfleet_build_info",
                "process_start_time_seconds",
                "process_cpu_seconds_total",
                "process_resident_memory_bytes",
                "process_open_fds",
            ]
        );
    }
}
