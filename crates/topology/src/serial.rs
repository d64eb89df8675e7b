//! The feature `serde`.

use std::fmt::Display;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, SerializeMap, SerializeStruct, Serializer};

use crate::steering::Steering;
use crate::{CpuSet, Pod, Scope, Topology};

/// The list form (`"0-5,24-29"`).
///
/// ```
/// use inflight_topology::CpuSet;
///
/// let set = CpuSet::from([0, 1, 9]);
/// assert_eq!(serde_json::to_string(&set)?, r#""0-1,9""#);
/// # Ok::<(), serde_json::Error>(())
/// ```
impl Serialize for CpuSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The list form, as [`FromStr`] reads it.
///
/// ```
/// use inflight_topology::CpuSet;
///
/// assert_eq!(serde_json::from_str::<CpuSet>(r#""0-1,9""#)?, CpuSet::from([0, 1, 9]));
/// assert!(serde_json::from_str::<CpuSet>(r#""0-""#).is_err());
/// # Ok::<(), serde_json::Error>(())
/// ```
impl<'de> Deserialize<'de> for CpuSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer)
    }
}

/// The name (`"cache_shard"`).
///
/// ```
/// use inflight_topology::Scope;
///
/// assert_eq!(serde_json::to_string(&Scope::CacheShard)?, r#""cache_shard""#);
/// # Ok::<(), serde_json::Error>(())
/// ```
impl Serialize for Scope {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// The exact name.
///
/// ```
/// use inflight_topology::Scope;
///
/// assert_eq!(serde_json::from_str::<Scope>(r#""numa""#)?, Scope::Numa);
/// assert!(serde_json::from_str::<Scope>(r#""Numa""#).is_err());
/// # Ok::<(), serde_json::Error>(())
/// ```
impl<'de> Deserialize<'de> for Scope {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer)
    }
}

/// The name (`"same_cache"`).
///
/// ```
/// use inflight_topology::steering::Steering;
///
/// assert_eq!(serde_json::to_string(&Steering::SameCpu)?, r#""same_cpu""#);
/// # Ok::<(), serde_json::Error>(())
/// ```
impl Serialize for Steering {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// The exact name.
///
/// ```
/// use inflight_topology::steering::Steering;
///
/// assert_eq!(serde_json::from_str::<Steering>(r#""force""#)?, Steering::Force);
/// assert!(serde_json::from_str::<Steering>(r#""Force""#).is_err());
/// # Ok::<(), serde_json::Error>(())
/// ```
impl<'de> Deserialize<'de> for Steering {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer)
    }
}

fn from_text<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    String::deserialize(deserializer)?
        .parse()
        .map_err(D::Error::custom)
}

/// The CPUs and the node; the place in the list of pods is the id.
///
/// ```
/// use inflight_topology::{Scope, Topology};
///
/// let topo = Topology::synthetic("core:2")?;
/// let pod = &topo.pods(Scope::Cache)[0];
/// assert_eq!(serde_json::to_string(pod)?, r#"{"cpus":"0-1","node":0}"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl Serialize for Pod {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut pod = serializer.serialize_struct("Pod", 2)?;
        pod.serialize_field("cpus", self.cpus())?;
        pod.serialize_field("node", &self.node())?;
        pod.end()
    }
}

/// A record for logs and reports; it is not read back. To keep a machine, use
/// [`write_sysfs`](Topology::write_sysfs).
///
/// Fields: `version`, `this_machine`, the sets `cpus`, `online`, `possible`, `isolated` and
/// `allowed` as lists, `speed_classes` as lists from the slowest, `scopes` with the pods of each by
/// its name, and `assumptions` as sentences. (The example `topo` prints another form, with numbers
/// instead of lists, for tools that know nothing of lists.)
///
/// ```
/// use inflight_topology::Topology;
///
/// let topo = Topology::synthetic("numa:2 core:4 fast:0-1")?;
/// let record = serde_json::to_value(&topo)?;
/// assert_eq!(record["cpus"], "0-7");
/// assert_eq!(record["speed_classes"][1], "0-1");
/// assert_eq!(record["scopes"]["numa"][1]["cpus"], "4-7");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl Serialize for Topology {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let assumptions: Vec<String> = self.assumptions().iter().map(|a| a.to_string()).collect();
        let mut record = serializer.serialize_struct("Topology", 10)?;
        record.serialize_field("version", &self.version())?;
        record.serialize_field("this_machine", &self.is_this_machine())?;
        record.serialize_field("cpus", self.cpus())?;
        record.serialize_field("online", self.online())?;
        record.serialize_field("possible", self.possible())?;
        record.serialize_field("isolated", self.isolated())?;
        record.serialize_field("allowed", self.allowed())?;
        record.serialize_field("speed_classes", self.speed_classes())?;
        record.serialize_field("scopes", &Scopes(self))?;
        record.serialize_field("assumptions", &assumptions)?;
        record.end()
    }
}

/// The pods of each scope, by its name.
struct Scopes<'a>(&'a Topology);

impl Serialize for Scopes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut scopes = serializer.serialize_map(Some(Scope::ALL.len()))?;
        for scope in Scope::ALL {
            scopes.serialize_entry(&scope, self.0.pods(scope))?;
        }
        scopes.end()
    }
}
