//! What chips can do: the table of SoCs and routers, and finding out which of them an image or a box is.
